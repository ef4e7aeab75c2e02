"""Decoders that attend both ways by their own class (`auto_map`): served by record, without that code.

The reference is transformers' causal class with an attention mask that hides nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as tf
from sentence_transformers.sentence_transformer import modules as st
from sie_cpu.plugin import sie_runners
from sie_pytorch.forward.specs import RUNNERS
from sie_sentence_transformers.references.vectors import Vectors
from sie_text.claims import claim_encoder

from sie_core.catalog import read_card
from sie_core.contracts import Claim, Item, ModelInfo, ModelLoadError, NoClaim, Task
from tests.pytorch.encoders import ask, context, serve, write_encoder
from tests.pytorch.encoders import deviation as of_vectors
from tests.pytorch.forward.support import LONG, TOLERANCE, build, deviation, forward, packed_batch
from tests.pytorch.models import DECODER, HIDDEN, randomise
from tests.pytorch.tokenizers import write_tokenizer

TEXTS = ["fox", "the lazy dog jumps", "the index keeps what it has read " * 12]
POOLINGS = ("mean", "cls", "lasttoken", "max", "weightedmean")
EVERY = (*RUNNERS, *sie_runners())


def auto_map(model: str) -> dict[str, Any]:
    return {"auto_map": {"AutoConfig": "own--configuration.Config", "AutoModel": f"own/repository--{model}"}}


TYPES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "llama_bidirec": (
        tf.LlamaModel,
        tf.LlamaConfig,
        {
            **auto_map("llama_bidirectional_model.LlamaBidirectionalModel"),
            "architectures": ["LlamaBidirectionalModel"],
            "pooling": "avg",
            "temperature": 0.02,
        },
    ),
    "bidirectional_pplx_qwen3": (
        tf.Qwen3Model,
        tf.Qwen3Config,
        {
            **auto_map("modeling.PPLXQwen3Model"),
            "architectures": ["PPLXQwen3Model"],
            "use_bidirectional_attention": True,
        },
    ),
    "qwen2": (
        tf.Qwen2Model,
        tf.Qwen2Config,
        {**auto_map("modeling_qwen.Qwen2Model"), "architectures": ["Qwen2Model"], "is_causal": False},
    ),
}
"""By model type: transformers' class and config, and what the published config says in addition."""


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Write a checkpoint of a type without sentence-transformers' files."""

    def write(model_type: str) -> Path:
        model_class, config_class, fields = TYPES[model_type]
        folder = tmp_path_factory.mktemp(model_type)
        model = model_class(config_class(**DECODER))
        randomise(model, 0)
        model.save_pretrained(folder)
        write_tokenizer("decoder", folder)
        return change(folder, model_type=model_type, **fields)

    return cache(write)


def change(folder: Path, **fields: Any) -> Path:
    """Set fields of `config.json`; None takes one out."""
    file = folder / "config.json"
    config = {**json.loads(file.read_text()), **fields}
    file.write_text(json.dumps({name: value for name, value in config.items() if value is not None}))
    return folder


@torch.inference_mode()
def states(model_type: str, folder: Path, ids: torch.Tensor) -> torch.Tensor:
    """Compute the states of one sequence by the causal class under a mask that hides nothing."""
    model_class, config_class, _ = TYPES[model_type]
    config = config_class(**DECODER)
    model = model_class.from_pretrained(folder, config=config, attn_implementation="eager").eval()
    found: torch.Tensor = model(ids[None], attention_mask=torch.zeros(1, 1, len(ids), len(ids))).last_hidden_state[0]
    return found


def pooled(rows: torch.Tensor, pooling: str) -> torch.Tensor:
    weights = torch.arange(1.0, len(rows) + 1)[:, None]
    return {
        "mean": rows.mean(dim=0),
        "cls": rows[0],
        "lasttoken": rows[-1],
        "max": rows.max(dim=0).values,
        "weightedmean": (rows * weights).sum(dim=0) / weights.sum(),
    }[pooling]


def expected(model_type: str, folder: Path, pooling: str) -> np.ndarray:
    tokenizer = tf.PreTrainedTokenizerFast.from_pretrained(folder)
    rows = [torch.tensor(tokenizer(text).input_ids) for text in TEXTS]
    return np.stack([pooled(states(model_type, folder, ids), pooling).numpy() for ids in rows])


@pytest.mark.parametrize("model_type", TYPES)
@pytest.mark.parametrize("runner", ["cpu-kernels", "encoder-loop", "packed", "padded"])
def test_every_runner_attends_both_ways(model_type: str, runner: str, plain: Callable[[str], Path]) -> None:
    folder, batch = plain(model_type), packed_batch(LONG)
    found = build(folder, [spec for spec in EVERY if spec.name == runner])
    assert found.info.name == runner, found.info.reason
    wanted = torch.cat([states(model_type, folder, batch.ids[place]) for place in batch.places])
    assert deviation(forward(found, batch), wanted) <= TOLERANCE
    alone = torch.cat([forward(found, batch.one(place)) for place in batch.places])
    assert deviation(alone, wanted) <= TOLERANCE


@pytest.mark.parametrize("model_type", TYPES)
@pytest.mark.parametrize("pooling", POOLINGS)
def test_vectors_of_every_pooling_are_right_in_a_batch_and_alone(
    model_type: str, pooling: str, plain: Callable[[str], Path], tmp_path: Path
) -> None:
    base = change(_copied(plain(model_type), tmp_path / "base"), model_type=_served_as(model_type), auto_map=None)
    write_encoder(base, tmp_path / "model", st.Pooling(HIDDEN, pooling))
    folder = change(tmp_path / "model", model_type=model_type, **TYPES[model_type][2])
    encoder = serve(folder)
    assert "auto_map" not in encoder.facts.notes
    wanted = expected(model_type, plain(model_type), pooling)
    assert of_vectors(ask(encoder, TEXTS).vectors, wanted) <= TOLERANCE
    alone = np.concatenate([ask(encoder, [text]).vectors for text in TEXTS])
    assert of_vectors(alone, wanted) <= TOLERANCE


def _served_as(model_type: str) -> str:
    return str(TYPES[model_type][1].model_type)


def _copied(folder: Path, to: Path) -> Path:
    to.mkdir()
    for file in folder.iterdir():
        (to / file.name).write_bytes(file.read_bytes())
    return to


@pytest.mark.parametrize("model_type", TYPES)
def test_a_plain_checkpoint_is_claimed_and_pooled_by_its_mean(model_type: str, plain: Callable[[str], Path]) -> None:
    folder = plain(model_type)
    claim = claim_encoder(read_card(folder))
    assert isinstance(claim, Claim)
    assert claim.reason == f"it is a plain {model_type} encoder, served as Transformer → Pooling(mean)"
    assert of_vectors(ask(serve(folder), TEXTS).vectors, expected(model_type, folder, "mean")) <= TOLERANCE


@pytest.mark.parametrize(("stated", "pooling"), [("cls", "cls"), ("last", "lasttoken")])
def test_the_pooling_of_a_plain_config_is_obeyed(
    stated: str, pooling: str, plain: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = change(_copied(plain("llama_bidirec"), tmp_path / "model"), pooling=stated)
    assert of_vectors(ask(serve(folder), TEXTS).vectors, expected("llama_bidirec", folder, pooling)) <= TOLERANCE


def test_a_pooling_that_no_record_knows_is_refused_by_name(plain: Callable[[str], Path], tmp_path: Path) -> None:
    folder = change(_copied(plain("llama_bidirec"), tmp_path / "model"), pooling="weighted_avg")
    claim = claim_encoder(read_card(folder))
    assert isinstance(claim, NoClaim)
    assert claim.reason == "its config.json asks for the pooling 'weighted_avg'"


def test_the_same_class_is_refused_where_the_config_does_not_say_that_it_attends_both_ways(
    plain: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = change(_copied(plain("qwen2"), tmp_path / "model"), is_causal=None)
    with pytest.raises(ModelLoadError, match=r"modeling_qwen\.Qwen2Model"):
        serve(folder)


@pytest.mark.parametrize("fields", [{"is_causal": True}, {"use_sliding_window": True}], ids=str)
def test_what_the_translation_does_not_cover_is_refused(
    fields: dict[str, Any], plain: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = change(_copied(plain("bidirectional_pplx_qwen3"), tmp_path / "model"), **fields)
    with pytest.raises(ModelLoadError, match=f"config.json sets {next(iter(fields))}=True, which is not served"):
        serve(folder)


def test_the_reference_reads_the_translated_config(plain: Callable[[str], Path]) -> None:
    folder = plain("llama_bidirec")
    model = Vectors.load(context(folder), ModelInfo("test/model", (), (), {}, "loaded", max_sequence_length=512))
    rows = [each.dense for each in model.answer([Item(text=text) for text in TEXTS], Task("encode", ("dense",)))]
    assert of_vectors(np.stack(rows), expected("llama_bidirec", folder, "mean")) <= TOLERANCE
