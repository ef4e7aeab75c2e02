"""What a device does wrong is told by the contract's errors, in loads, runs and while results are waited for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from sie_gliner import loading
from sie_gliner.forward import Forward
from sie_pytorch.forward import HostCopy

from sie_core.contracts import DeviceLost, OutOfDeviceMemory
from tests.gliner.loading import asking, extract, load

FAULTS = [
    ("could not create a primitive", OutOfDeviceMemory),
    ("[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory", OutOfDeviceMemory),
    ("CUDA error: an illegal memory access was encountered", DeviceLost),
]


def failing(said: str) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise RuntimeError(said)

    return fail


@pytest.mark.parametrize(("said", "raised"), FAULTS)
@pytest.mark.parametrize(("where", "what"), [(loading, "load_encoders"), (loading, "_placed")])
def test_a_load_tells_what_the_device_did(
    where: Any, what: str, said: str, raised: type[Exception], checkpoint: Callable[..., Path], monkeypatch: Any
) -> None:
    folder = checkpoint("span")
    monkeypatch.setattr(where, what, failing(said))
    with pytest.raises(raised):
        load(folder)


@pytest.mark.parametrize(("said", "raised"), FAULTS)
def test_a_run_tells_it_and_the_next_one_works(
    said: str, raised: type[Exception], extractor: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts, task = ["Wei Novak saw the otter of"], asking(["person"])
    before = extract(extractor, texts, task)
    with monkeypatch.context() as patch:
        patch.setattr(Forward, "answer", failing(said))
        with pytest.raises(raised):
            extract(extractor, texts, task)
    assert extract(extractor, texts, task) == before


def test_a_lost_device_shows_where_its_results_are_waited_for() -> None:
    class Event:
        synchronize = staticmethod(failing("CUDA error: device-side assert triggered"))

    with pytest.raises(DeviceLost, match="device-side assert"):
        HostCopy(torch.zeros(1), Event()).wait()  # type: ignore[arg-type]
