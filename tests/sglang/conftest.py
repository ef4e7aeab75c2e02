"""Tiny embedders with random weights, and the environment of an engine that stands in for sglang."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
import transformers as tf
from sentence_transformers.sentence_transformer import modules as st
from sie_sglang.adapter import SglangEncoder
from sie_sglang.loading import load

from tests.pytorch.encoders import context, write_encoder
from tests.pytorch.models import HIDDEN, write_checkpoint

ENGINE = Path(__file__).parent / "engine"
NAMES = {
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3Model",
    "mistral": "MistralModel",
    "llama": "LlamaForCausalLM",
}
"""The class that each published embedder of the kind names."""
PROMPTS = {"query": "Instruct: find it\nQuery: ", "document": ""}


@pytest.fixture(scope="session")
def embedders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of models: `test/NAME`, last token, unit length, with prompts."""
    folder = tmp_path_factory.mktemp("embedders")
    for name in NAMES:
        write_embedder(name, folder)
    return folder / "models"


def write_embedder(name: str, folder: Path) -> Path:
    """Write `models/test/NAME` into a folder."""
    base, made = folder / "base" / name, folder / "models" / "test" / name
    write_checkpoint(name, base)
    pooling = st.Pooling(HIDDEN, pooling_mode="lasttoken")
    write_encoder(base, made, pooling, st.Normalize(), length=48, prompts=PROMPTS)
    config = made / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "architectures": [NAMES[name]]}))
    return made


@pytest.fixture(scope="module")
def orders_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The orders of `served_once`."""
    return tmp_path_factory.mktemp("orders")


@pytest.fixture(scope="module")
def served_once(
    embedders: Path, orders_once: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SglangEncoder]:
    """One engine for the tests that leave it as it is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SIE_SGLANG_PYTHON", str(write_python(tmp_path_factory.mktemp("python"), orders_once, plain=True)))
        adapter = load(context(embedders / "test" / "qwen2"))
    yield adapter
    adapter.unload()


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    folder = tmp_path / "orders"
    folder.mkdir()
    return folder


@pytest.fixture
def engine_python(
    tmp_path: Path, orders: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Path:
    """The Python of an environment whose sglang stands in for the real one; its path has a blank."""
    python = write_python(tmp_path, orders, plain=request.module.__name__.endswith(("test_engine", "test_loras")))
    monkeypatch.setenv("SIE_SGLANG_PYTHON", str(python))
    return python


def write_python(folder: Path, orders: Path, *, plain: bool) -> Path:
    """Write the Python of an environment whose sglang stands in for the real one; its path has a blank."""
    python = folder / "an environment" / "python"
    python.parent.mkdir()
    given = f'PYTHONPATH="{ENGINE}" STANDIN_ORDERS="{orders}" STANDIN_PLAIN={plain:d}'
    python.write_text(f'#!/bin/sh\n{given} exec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    return python


def write_lora(base: Path, folder: Path, seed: int, **config: Any) -> Path:
    """Save a LoRA adapter for the transformer in `base`, with factors that change what it computes."""
    torch.manual_seed(seed)
    settings = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj", "down_proj"], **config}
    model = peft.get_peft_model(tf.AutoModel.from_pretrained(base), peft.LoraConfig(**settings))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_" in name:
                weight.normal_(std=0.2)
    model.save_pretrained(str(folder))
    return folder
