"""Every runner on a GPU, every architecture: a packed batch against each sequence alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch
from sie_flash import plugin
from sie_flash.runners import FusedLoopRunner, VarlenLoopRunner
from sie_pytorch.forward import (
    Factors,
    LoraRunner,
    LowRank,
    Runner,
    build_runner,
)
from sie_pytorch.forward.checkpoint.precision import relative_error
from sie_pytorch.forward.checkpoint.reading import load_model
from sie_pytorch.forward.choice.proof import states_alone
from sie_pytorch.forward.packed import PackedRunner
from sie_pytorch.forward.specs import RUNNERS as OURS

from sie_core.contracts import Device, ModelCard
from tests.flash.test_fused import FUSED_NAMES
from tests.gpu.device import CAPABLE, DEVICE, HALF, NEEDS_AMPERE, NEEDS_GPU, RUNNERS, MakeRunner
from tests.pytorch.forward.support import PackedBatch, batch_for, forward, load_of
from tests.pytorch.forward.test_low_rank import factors_for, merged
from tests.pytorch.models import ARCHITECTURES, LAYERS_OF, described

pytestmark = NEEDS_GPU

NAMES = [name for name, architecture in ARCHITECTURES.items() if architecture.packed]
LOOPED = described(plugin.VARLEN_LOOP.features)
OF_LOOPS = {VarlenLoopRunner: LOOPED, FusedLoopRunner: FUSED_NAMES}
CASES = [
    pytest.param(runner.values[0], name, id=f"{runner.id}-{name}", marks=runner.marks)
    for runner in RUNNERS
    for name in OF_LOOPS.get(runner.values[0], NAMES)
]
FACTOR, FACTOR_OF_WORST = 1.5, 4.0
"""How many times the error of the model's own forward pass in half precision, both measured against float32: over all
numbers, and of the worst token, which random weights make a matter of luck."""
FLOOR = 2e-3
"""What such an error may be where the model's own is smaller still."""
FLOAT32 = 2e-4

Checkpoint = Callable[[str], Path]
Alone = Callable[[str, torch.dtype], torch.Tensor]


def probe(name: str) -> PackedBatch:
    batch = batch_for(name)
    types = None if batch.types is None else batch.types.to(DEVICE)
    return replace(batch, ids=batch.ids.to(DEVICE), positions=batch.positions.to(DEVICE), types=types)


@pytest.fixture(scope="module")
def alone(checkpoint: Checkpoint) -> Alone:
    """Give the states of each sequence alone, from transformers' own model with its attention spelled out."""

    @torch.inference_mode()
    def states(name: str, dtype: torch.dtype) -> torch.Tensor:
        return states_alone(load_model(checkpoint(name), dtype, DEVICE), probe(name))

    return cache(states)


def made(make: MakeRunner, folder: Path, dtype: torch.dtype) -> Runner:
    model = load_model(folder, dtype, DEVICE)
    return make(load_of(model, folder, dtype))


@torch.inference_mode()
def packed(make: MakeRunner, name: str, folder: Path, dtype: torch.dtype) -> torch.Tensor:
    return forward(made(make, folder, dtype), probe(name))


def mean_error(states: torch.Tensor, exact: torch.Tensor) -> float:
    return float((states.float() - exact).pow(2).mean().sqrt() / exact.std())


def assert_as_near(states: torch.Tensor, own: torch.Tensor, exact: torch.Tensor) -> None:
    """Hold states to the model's own in the same precision, both measured against those in float32."""
    assert mean_error(states, exact) <= FACTOR * mean_error(own, exact) + FLOOR
    assert relative_error(states, exact) <= FACTOR_OF_WORST * relative_error(own, exact) + FLOOR


@pytest.mark.parametrize(("make", "name"), CASES)
@pytest.mark.parametrize("dtype", HALF)
def test_a_packed_batch_is_as_near_to_float32_as_each_sequence_alone(
    name: str, dtype: torch.dtype, make: MakeRunner, checkpoint: Checkpoint, alone: Alone
) -> None:
    assert_as_near(packed(make, name, checkpoint(name), dtype), alone(name, dtype), alone(name, torch.float32))


@NEEDS_AMPERE
@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("name", ["bert", "electra", "modernbert", "phi3", "qwen3"])
@torch.inference_mode()
def test_the_loop_adds_low_rank_factors_as_if_merged_into_the_weights(
    name: str, dtype: torch.dtype, checkpoint: Checkpoint
) -> None:
    runner = made(VarlenLoopRunner, checkpoint(name), dtype)
    assert isinstance(runner, LoraRunner)
    low_rank = factors_for(runner.linear_shapes, dict(runner.linear_shapes), seed=1)
    there = LowRank({
        layer: Factors(each.lower.to(DEVICE), each.upper.to(DEVICE)) for layer, each in low_rank.factors.items()
    })  # fmt: skip
    exact, own = (
        states_alone(merged(name, checkpoint(name), low_rank).to(DEVICE, each), probe(name))
        for each in (torch.float32, dtype)
    )
    states = forward(runner, probe(name), there)
    assert_as_near(states, own, exact)
    assert mean_error(forward(runner, probe(name)), exact) > 3 * mean_error(states, exact)


@NEEDS_AMPERE
@pytest.mark.parametrize("name", LOOPED)
@torch.inference_mode()
def test_a_pass_of_the_loop_waits_for_nothing_and_gives_the_same_numbers_on_every_stream(
    name: str, checkpoint: Checkpoint
) -> None:
    runner, batch = made(VarlenLoopRunner, checkpoint(name), torch.float16), probe(name)
    expected = forward(runner, batch)
    stream = torch.cuda.Stream(priority=-1)
    with torch.cuda.stream(stream):
        forward(runner, batch)  # what is allocated on a stream for the first time may wait
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        usual = forward(runner, batch)
        with torch.cuda.stream(stream):
            beside = forward(runner, batch)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    torch.cuda.synchronize()
    assert torch.equal(usual, expected)
    assert torch.equal(beside, expected)


@pytest.mark.parametrize("name", NAMES)
def test_in_float32_the_packed_runner_equals_each_sequence_alone(
    name: str, checkpoint: Checkpoint, alone: Alone
) -> None:
    states = packed(PackedRunner, name, checkpoint(name), torch.float32)
    assert relative_error(states, alone(name, torch.float32)) <= FLOAT32


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("precision", ["float16", "float32"])
@pytest.mark.parametrize("expands_queries", [False, True])
def test_the_best_runner_that_is_there_proves_itself(
    name: str, precision: str, expands_queries: bool, checkpoint: Checkpoint
) -> None:
    card = ModelCard(checkpoint(name), {})
    specs = [*plugin.sie_runners(), *OURS]
    built = build_runner(
        checkpoint(name), card, Device("cuda"), precision, runner_specs=specs, expands_queries=expands_queries
    )
    info = built.info
    kernels = [
        spec
        for spec in plugin.sie_runners()
        if spec.serves(info.model_type, "cuda", needs=LAYERS_OF[info.model_type].needs)
    ]
    best = kernels[0].name if CAPABLE and precision == "float16" else "packed"
    assert info.name == best, info.reason
    assert info.precision == precision


@pytest.mark.parametrize("backend", ["sdpa", "eager"])
def test_other_backends_leave_the_kernels_out(backend: str, checkpoint: Checkpoint) -> None:
    folder = checkpoint("modernbert")
    specs = [*plugin.sie_runners(), *OURS]
    info = build_runner(
        folder, ModelCard(folder, {}), Device("cuda"), "float16", attention_backend=backend, runner_specs=specs
    ).info
    assert info.name == "packed", info.reason
