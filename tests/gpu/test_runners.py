"""Every runner on a GPU, every architecture: a packed batch against each sequence alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch
from sie_flash import plugin
from sie_pytorch.forward import RunnerContext, build_runner, relative_error
from sie_pytorch.forward.checkpoint.reading import load_model
from sie_pytorch.forward.choice.probes import Probe
from sie_pytorch.forward.choice.proof import states_alone
from sie_pytorch.forward.packed import PackedRunner
from sie_pytorch.forward.specs import RUNNERS as OURS

from sie_core.contracts import Device, ModelCard
from tests.gpu.device import CAPABLE, DEVICE, HALF, NEEDS_GPU, RUNNERS, MakeRunner
from tests.pytorch.forward.support import batch_for, forward
from tests.pytorch.models import ARCHITECTURES

pytestmark = NEEDS_GPU

NAMES = [name for name, architecture in ARCHITECTURES.items() if architecture.packed]
FACTOR = 2.0
"""How many times the error of the model's own forward pass in half precision, both measured against float32."""
FLOOR = 2e-3
"""What such an error may be where the model's own is smaller still."""
FLOAT32 = 2e-4

Checkpoint = Callable[[str], Path]
Alone = Callable[[str, torch.dtype], torch.Tensor]


def probe(name: str) -> Probe:
    batch = batch_for(name)
    segments = None if batch.segment_ids is None else batch.segment_ids.to(DEVICE)
    return Probe(batch.ids.to(DEVICE), batch.positions.to(DEVICE), segments, batch.cu_seqlens)


@pytest.fixture(scope="module")
def alone(checkpoint: Checkpoint) -> Alone:
    """Give the states of each sequence alone, from transformers' own model with its attention spelled out."""

    @torch.inference_mode()
    def states(name: str, dtype: torch.dtype) -> torch.Tensor:
        return states_alone(load_model(checkpoint(name), dtype, DEVICE), probe(name))

    return cache(states)


def packed(make: MakeRunner, name: str, folder: Path, dtype: torch.dtype) -> torch.Tensor:
    model = load_model(folder, dtype, DEVICE)
    context = RunnerContext(model, folder, ModelCard(folder, {}), DEVICE, dtype, "auto", 1)
    with torch.inference_mode():
        return forward(make(context), probe(name))


@pytest.mark.parametrize("make", RUNNERS)
@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("name", NAMES)
def test_a_packed_batch_is_as_near_to_float32_as_each_sequence_alone(
    name: str, dtype: torch.dtype, make: MakeRunner, checkpoint: Checkpoint, alone: Alone
) -> None:
    exact = alone(name, torch.float32)
    own = relative_error(alone(name, dtype), exact)
    assert relative_error(packed(make, name, checkpoint(name), dtype), exact) <= FACTOR * own + FLOOR


@pytest.mark.parametrize("name", NAMES)
def test_in_float32_the_packed_runner_equals_each_sequence_alone(
    name: str, checkpoint: Checkpoint, alone: Alone
) -> None:
    states = packed(PackedRunner, name, checkpoint(name), torch.float32)
    assert relative_error(states, alone(name, torch.float32)) <= FLOAT32


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("precision", ["float16", "float32"])
@pytest.mark.parametrize("fills_up", [False, True])
def test_the_best_runner_that_is_there_proves_itself(
    name: str, precision: str, fills_up: bool, checkpoint: Checkpoint
) -> None:
    card = ModelCard(checkpoint(name), {})
    specs = [*plugin.sie_runners(), *OURS]
    built = build_runner(checkpoint(name), card, Device("cuda"), precision, runner_specs=specs, fills_up=fills_up)
    info = built.info
    best = plugin.sie_runners()[0].name if CAPABLE and precision == "float16" else "packed"
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
