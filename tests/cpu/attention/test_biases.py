"""The kernels add the biases by distance of MPNet and T5: in each build, beyond every bucket."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as tf
from sie_cpu.builds import Build
from sie_cpu.forward import encoder as kernel_encoder
from sie_cpu.plugin import sie_runners
from sie_pytorch.forward import build_runner
from sie_pytorch.forward.loop.bias import RelativeBias
from sie_text.architectures import Architecture
from sie_text.architectures.rows import T5 as T5_LAYERS

from sie_core.contracts import Device, ModelCard, preempted_by
from tests.pytorch.forward.loop.test_bias import FAR, MODELS, T5, WRONG, by_bias, saved
from tests.pytorch.forward.support import TOLERANCE, build, deviation, forward, packed_batch, padded_states
from tests.pytorch.models import randomise

__all__ = ["saved"]
pytestmark = pytest.mark.usefixtures("kernel_build")
REFUSED = "not cpu-kernels: its states differ from each sequence alone by"


@pytest.fixture
def only_float32(kernel_build: Build) -> None:
    if kernel_build.precision != "float32":
        pytest.skip("this test takes the tolerance of float32")


@pytest.mark.parametrize("name", MODELS)
def test_states_beyond_every_bucket_are_those_of_transformers(
    name: str, saved: Callable, serve: Callable, kernel_build: Build
) -> None:
    folder, model = saved(name)
    runner, batch = serve(folder), packed_batch(FAR)
    states, expected = forward(runner, batch), padded_states(model, batch)
    if kernel_build.precision == "float32":
        assert deviation(states, expected) <= TOLERANCE
    else:
        halved = padded_states(copy.deepcopy(model).bfloat16(), batch).float()
        assert deviation(states, expected) < deviation(halved, expected)
    assert torch.equal(torch.cat([forward(runner, batch.one(place)) for place in batch.places]), states)


@pytest.mark.parametrize("name", ["mpnet", "t5"])
@pytest.mark.parametrize("threads", [1, 5])
def test_a_batch_that_is_preempted_within_layers_has_the_same_biases(
    name: str, threads: int, saved: Callable, serve: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner, batch = serve(saved(name)[0], threads), packed_batch(FAR)
    expected = forward(runner, batch)
    monkeypatch.setattr(kernel_encoder, "PRODUCTS_AT_ONCE", 0)
    monkeypatch.setattr(kernel_encoder, "LEAST_AT_ONCE", 1)
    with preempted_by(lambda: None):
        assert torch.equal(forward(runner, batch), expected)


@pytest.mark.usefixtures("only_float32")
@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_bias_is_refused_by_the_proof(wrong: str, saved: Callable) -> None:
    name, bias = WRONG[wrong]
    info = by_bias(saved(name)[0], bias, sie_runners()).info
    assert info.name == "padded"
    assert REFUSED in info.reason


FAULTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "a distance off by one": lambda biases: biases.roll(1, dims=1),
    "keys after a query taken for those before it": lambda biases: biases.flip(1),
    "the heads in another order": lambda biases: biases.roll(1, dims=0),
    "one bias for all far distances": lambda biases: torch.cat([biases[:, -1:], biases[:, 1:]], dim=1),
}


@pytest.mark.usefixtures("only_float32")
@pytest.mark.parametrize("name", ["mpnet", "t5"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_seeded_fault_is_found_at_load(
    name: str, fault: str, saved: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = RelativeBias.__init__

    def wrong(self: RelativeBias, table: torch.Tensor, farthest: int) -> None:
        make(self, table, farthest)
        self.by_distance = FAULTS[fault](self.by_distance).contiguous()

    monkeypatch.setattr(RelativeBias, "__init__", wrong)
    info = build(saved(name)[0], sie_runners()).info
    assert info.name == "padded"
    assert REFUSED in info.reason


@pytest.mark.usefixtures("only_float32")
def test_biases_of_each_layer_are_not_taken_for_shared_ones(tmp_path: Path) -> None:
    model: Any = tf.UMT5EncoderModel(tf.UMT5Config(**T5, d_kv=8))
    randomise(model, 0)
    model.save_pretrained(tmp_path)
    card = ModelCard(
        tmp_path,
        json.loads((tmp_path / "config.json").read_text()),
        records={"umt5": Architecture("umt5", layers=T5_LAYERS)},
    )
    info = build_runner(tmp_path, card, Device("cpu"), "float32", runner_specs=sie_runners()).info
    assert info.name == "padded"
    assert REFUSED in info.reason
