"""A real SGLang engine: `SIE_SGLANG_PYTHON` names its Python. Its numbers, LoRA adapters, faults and end."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import transformers as tf
from sentence_transformers.sentence_transformer import modules as st
from sie_sglang.adapter import SglangEncoder
from sie_sglang.loading import load

from sie_core.contracts import Device
from tests.gpu.device import NEEDS_GPU
from tests.pytorch.encoders import ask, context, serve, write_encoder
from tests.pytorch.models import ARCHITECTURES, randomise
from tests.pytorch.tokenizers import write_tokenizer
from tests.sglang.conftest import NAMES, PROMPTS, write_lora
from tests.sglang.test_engine import answer_after_restart, engines, wait_until_gone
from tests.sglang.test_numbers import texts, told

THERE = bool(os.environ.get("SIE_SGLANG_PYTHON"))
pytestmark = [*NEEDS_GPU, pytest.mark.skipif(not THERE, reason="needs SIE_SGLANG_PYTHON, an environment with sglang")]

CUDA = Device("cuda", asynchronous=True)
SIZES = {
    "hidden_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "intermediate_size": 512
}  # fmt: skip
"""The engine's kernels take no heads as small as those of other tests."""
LEAST_COSINE = 0.999


@pytest.fixture(scope="module", params=NAMES)
def folder(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    base, made = tmp_path_factory.mktemp("base"), tmp_path_factory.mktemp("models") / "model"
    config = ARCHITECTURES[request.param].config()
    for name, size in SIZES.items():
        setattr(config, name, size)
    model = tf.AutoModel.from_config(config)
    randomise(model, 0)
    model.save_pretrained(base)
    write_tokenizer(ARCHITECTURES[request.param].tokenizer, base)
    pooling = st.Pooling(SIZES["hidden_size"], pooling_mode="lasttoken")
    write_encoder(base, made, pooling, st.Normalize(), length=48, prompts=PROMPTS)
    card = made / "config.json"
    card.write_text(json.dumps({**json.loads(card.read_text()), "architectures": [NAMES[request.param]]}))
    return made


@pytest.fixture(scope="module")
def ours(folder: Path) -> Iterator[SglangEncoder]:
    adapter = load(context(folder, precision="bfloat16", device=CUDA, loadtime={"max_lora_rank": 16}))
    yield adapter
    adapter.unload()


def test_tokens_are_the_same_and_vectors_near_those_of_the_other_family(ours: SglangEncoder, folder: Path) -> None:
    theirs = serve(folder)
    for role in (None, "query", "document"):
        one, other = (ask(adapter, texts(40), input_type=role) for adapter in (ours, theirs))
        assert told(one) == told(other)
        assert (one.vectors * other.vectors).sum(axis=1).min() >= LEAST_COSINE
    lora = write_lora(folder, folder / "lora", 1)
    one, other = (ask(each, texts(5), lora=each.load_lora("l", lora)).vectors for each in (ours, theirs))
    assert (one * other).sum(axis=1).min() >= LEAST_COSINE
    assert (one * ask(ours, texts(5)).vectors).sum(axis=1).min() < LEAST_COSINE


def test_a_killed_engine_is_started_again_and_frees_the_device_at_its_end(ours: SglangEncoder, folder: Path) -> None:
    right = ask(ours, ["one", "two and three"]).vectors
    before = engines(folder)
    next(each for each in before if "guard.py" not in " ".join(each.cmdline())).kill()
    wait_until_gone(before)
    again = answer_after_restart(ours)
    assert (np.sum(again * right, axis=1) >= LEAST_COSINE).all()
