"""Biases by distance in the loop: MPNet's and T5's, against transformers, on texts beyond every bucket."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as tf
from sie_pytorch.forward import BuiltRunner, build_runner
from sie_pytorch.forward.loop.bias import RelativeBias, buckets_of
from sie_pytorch.forward.specs import RUNNERS
from sie_text.architectures import Bias, find_architecture
from transformers.models.mpnet.modeling_mpnet import MPNetEncoder
from transformers.models.t5.modeling_t5 import T5Attention

from sie_core.contracts import Device, ModelCard, RunnerSpec
from tests.pytorch.forward.support import TOLERANCE, build, deviation, forward, packed_batch, padded_states
from tests.pytorch.models import HEADS, HIDDEN, LAYERS, ROBERTA, VOCABULARY, randomise

FAR = (400, 129, 128, 127, 40, 1, 9, 9, 2)
"""Lengths of texts around and beyond 128 tokens, from which all distances share a bucket."""
T5 = {"vocab_size": VOCABULARY, "d_model": HIDDEN, "d_ff": 48, "num_layers": LAYERS, "num_heads": HEADS}
MODELS: dict[str, Callable[[], Any]] = {
    "mpnet": lambda: tf.MPNetModel(
        tf.MPNetConfig(**{name: value for name, value in ROBERTA.items() if name != "type_vocab_size"} | LONGER)
    ),
    "t5": lambda: tf.T5EncoderModel(tf.T5Config(**T5, d_kv=16, feed_forward_proj="relu")),
    "t5 with a gate": lambda: tf.T5EncoderModel(tf.T5Config(**T5, d_kv=8, feed_forward_proj="gated-gelu")),
    "t5 with few buckets": lambda: tf.T5EncoderModel(
        tf.T5Config(**T5, d_kv=8, relative_attention_num_buckets=8, relative_attention_max_distance=20)
    ),
    "mt5": lambda: tf.MT5EncoderModel(tf.MT5Config(**T5, d_kv=8)),
}
LONGER = {"max_position_embeddings": 514}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Any]]:
    """Give a checkpoint and transformers' model of it."""

    def write(name: str) -> tuple[Path, Any]:
        model, folder = MODELS[name](), tmp_path_factory.mktemp(name.replace(" ", "-"))
        randomise(model, 0)
        model.save_pretrained(folder)
        return folder, model.eval()

    return cache(write)


@pytest.mark.parametrize(("buckets", "farthest"), [(32, 128), (8, 20), (16, 64), (64, 256)])
def test_every_distance_is_in_transformers_bucket(buckets: int, farthest: int) -> None:
    distances = torch.arange(-3000, 3001)
    ours = buckets_of(distances, buckets, farthest)
    assert torch.equal(ours, T5Attention._relative_position_bucket(distances, True, buckets, farthest))
    theirs = MPNetEncoder.relative_position_bucket(distances, num_buckets=buckets, max_distance=farthest)
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("length", [1, 2, 20, 21, 300])
def test_biases_of_a_length_are_those_of_its_distances(length: int) -> None:
    table = torch.randn(8, 3, generator=torch.Generator().manual_seed(0))
    places = torch.arange(length)
    expected = table[buckets_of(places - places[:, None], 8, 20)].permute(2, 0, 1)
    assert torch.equal(RelativeBias(table, 20).within(length, torch.float32), expected)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("attention", ["auto", "eager"])
def test_states_beyond_every_bucket_are_those_of_transformers(name: str, attention: str, saved: Callable) -> None:
    folder, model = saved(name)
    runner, batch = build(folder, RUNNERS, attention_backend=attention), packed_batch(FAR)
    assert runner.info.name == "encoder-loop", runner.info.reason
    expected = padded_states(model, batch)
    assert deviation(forward(runner, batch), expected) <= TOLERANCE
    alone = torch.cat([forward(runner, batch.one(place)) for place in batch.places])
    assert deviation(alone, expected) <= TOLERANCE


def by_bias(folder: Path, bias: Bias | None, specs: Sequence[RunnerSpec] = RUNNERS) -> BuiltRunner:
    """Build a runner by a record with another bias."""
    config = json.loads((folder / "config.json").read_text())
    record = find_architecture(config["model_type"])
    assert record is not None
    assert record.layers is not None
    record = replace(record, layers=replace(record.layers, bias=bias))
    card = ModelCard(folder, config, records={record.name: record})
    return build_runner(folder, card, Device("cpu"), "float32", runner_specs=specs)


MPNET_TABLE = "encoder.relative_attention_bias"
WRONG = {
    "no bias": ("mpnet", None),
    "buckets that end earlier": ("mpnet", Bias(MPNET_TABLE, 127)),
    "buckets that end later": ("mpnet", Bias(MPNET_TABLE, 131)),
    "no bias of T5": ("t5", None),
    "of another width": ("t5", Bias("encoder.block.0.layer.0.SelfAttention.relative_attention_bias", 64)),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_bias_is_refused_by_the_proof(wrong: str, saved: Callable) -> None:
    name, bias = WRONG[wrong]
    info = by_bias(saved(name)[0], bias).info
    assert info.name == "padded"
    assert "not encoder-loop: its states differ from each sequence alone by" in info.reason
