"""What runs on the device thread never waits for the device, and what it leaves behind arrives whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sie_flash import plugin
from sie_pytorch.families.encode.loading import load
from sie_pytorch.forward.specs import RUNNERS
from sie_pytorch.forward.transfers import HostCopies, Transfers
from sie_pytorch.heads.composed.model import Computed

from sie_core.contracts import Adapter, Device, Item, ItemOutput, Task, Unit
from tests.gpu.device import DEVICE, NEEDS_GPU
from tests.pytorch.corpus import make_texts
from tests.pytorch.encoders import context
from tests.pytorch.models import ARCHITECTURES

pytestmark = NEEDS_GPU

NAMES = [name for name, architecture in ARCHITECTURES.items() if architecture.packed]
TEXTS = make_texts(24, 20, seed=5)
LONG_SLEEP = 6_000_000_000
"""Cycles the device is kept busy for: seconds."""


def encoder(folder: Path) -> tuple[Adapter, list[Unit]]:
    """Load a model onto the GPU, warm, and prepare a batch."""
    on_gpu = replace(
        context(folder, precision="float16"), device=Device("cuda"), runners=(*plugin.sie_runners(), *RUNNERS)
    )
    adapter = load(on_gpu)
    units = list(adapter.prepare([Item(text=text) for text in TEXTS], Task("encode", ("dense",))))
    adapter.finish(units, adapter.run(units))
    return adapter, units


@contextmanager
def waiting_forbidden() -> Iterator[None]:
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("name", NAMES)
def test_no_architecture_s_run_waits(name: str, checkpoint: Callable[[str], Path]) -> None:
    adapter, units = encoder(checkpoint(name))
    with waiting_forbidden():
        raw = adapter.run(units)
    assert len(adapter.finish(units, raw)) == len(units)


@pytest.mark.parametrize("trial", ["off", "copies"])
@pytest.mark.parametrize("name", ["bert", "qwen3"])
def test_a_second_batch_is_launched_while_the_first_one_runs(
    name: str, trial: str, checkpoint: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIE_CUDA_TRIAL", trial)
    adapter, units = encoder(checkpoint(name))
    # Two at once for warmth: what is allocated for the first time may wait.
    warm = [adapter.run(units) for _ in range(2)]
    expected = [output.dense for raw in warm for output in adapter.finish(units, raw)]
    torch.cuda._sleep(LONG_SLEEP)
    raws: list[list[Computed]] = [adapter.run(units) for _ in range(2)]
    ((_, results),) = raws[0]
    assert isinstance(results, HostCopies)
    (copy,) = results.copies
    assert copy.done is not None
    assert not copy.done.query()
    for raw in raws:
        for output, vector in zip(adapter.finish(units, raw), expected[: len(units)], strict=True):
            assert output.dense is not None
            assert vector is not None
            assert np.allclose(output.dense, vector, atol=1e-3)


def vectors(outputs: Sequence[ItemOutput]) -> NDArray[np.float32]:
    return np.stack([output.dense for output in outputs if output.dense is not None])


def test_results_are_those_of_what_was_computed_before() -> None:
    transfers = Transfers(DEVICE)
    copies = []
    for number in range(200):
        rows = np.full((1 << 16,), number, dtype=np.int64)
        (there,) = transfers.upload([rows])
        copies.append(transfers.download(there.double().mul(2).float().reshape(256, 256)))
        del there
    for number, copy in enumerate(copies):
        assert (copy.wait() == 2 * number).all()


def test_several_arrays_travel_as_one_and_arrive_apart() -> None:
    arrays = [np.arange(size) for size in (5, 1, 70_000)]
    for array, there in zip(arrays, Transfers(DEVICE).upload(arrays), strict=True):
        assert there.device.type == "cuda"
        assert np.array_equal(there.cpu().numpy(), array)
