"""How long work on a device takes, launched ahead and waited for at the end."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import torch


def wait(device: torch.device) -> None:
    """Wait until the device is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def seconds(work: Callable[[], object], device: torch.device, repeats: int) -> list[float]:
    """Time `work` `repeats` times, after once for warmth."""
    work()
    wait(device)
    taken = []
    for _ in range(repeats):
        started = time.perf_counter()
        work()
        wait(device)
        taken.append(time.perf_counter() - started)
    return taken


def product_rate(device: torch.device, dtype: torch.dtype, size: int, repeats: int) -> float:
    """Measure the matrix-product limit in FLOP/s: the best of a few square products of `size`, ten a time."""
    left, right = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))

    def work() -> None:
        for _ in range(10):
            left @ right

    return 10 * 2 * size**3 / min(seconds(work, device, repeats))


def middle(values: list[float]) -> float:
    """Return the median."""
    return float(median(values))
