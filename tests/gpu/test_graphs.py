"""Recorded passes on a GPU: as near to float32 as launched ones, beside work of another thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from sie_flash.graphs import CudaCapture
from sie_flash.kernels import torch_flash
from sie_flash.loop import VarlenLoop
from sie_flash.runners import VarlenLoopRunner
from sie_pytorch.forward import RunnerContext
from sie_pytorch.forward.checkpoint.reading import load_model
from sie_pytorch.forward.choice.proof import states_alone

from tests.gpu.device import DEVICE, HALF, NEEDS_AMPERE, NEEDS_GPU
from tests.gpu.test_runners import LOOPED, assert_as_near, made, packed, probe
from tests.pytorch.forward.support import forward

pytestmark = [*NEEDS_GPU, NEEDS_AMPERE]

Checkpoint = Callable[[str], Path]


def graphed(context: RunnerContext) -> VarlenLoop:
    return VarlenLoop(context, torch_flash(), partial(CudaCapture, context.device))


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("name", LOOPED)
@torch.inference_mode()
def test_a_recorded_pass_is_as_near_to_float32_as_each_sequence_alone(
    name: str, dtype: torch.dtype, checkpoint: Checkpoint
) -> None:
    exact, own = (
        states_alone(load_model(checkpoint(name), each, DEVICE), probe(name)) for each in (torch.float32, dtype)
    )
    runner = made(graphed, checkpoint(name), dtype)
    for _ in range(2):
        assert_as_near(forward(runner, probe(name)), own, exact)
    assert isinstance(runner, VarlenLoop)
    assert runner._graphs is not None
    assert len(runner._graphs._recorded) == 1, "it was launched, not recorded"
    assert_as_near(forward(runner, probe(name)), packed(VarlenLoopRunner, name, checkpoint(name), dtype), exact)


@torch.inference_mode()
def test_another_thread_may_allocate_and_compute_while_a_pass_is_recorded(checkpoint: Checkpoint) -> None:
    runner, batch = made(graphed, checkpoint("bert"), torch.float16), probe("bert")
    expected = forward(made(VarlenLoopRunner, checkpoint("bert"), torch.float16), batch)
    stop, done = threading.Event(), []

    def load() -> None:
        stream = torch.cuda.Stream()
        while not stop.is_set():
            with torch.cuda.stream(stream):
                done.append(float((torch.ones(256, 256, device=DEVICE) @ torch.ones(256, 256, device=DEVICE))[0, 0]))

    thread = threading.Thread(target=load)
    thread.start()
    try:
        states = forward(runner, batch)
    finally:
        stop.set()
        thread.join(30.0)
    assert torch.allclose(states.float(), expected.float(), atol=2e-2)
    assert set(done) <= {256.0}
