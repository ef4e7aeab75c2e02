"""By which part of a program its CPU is used, sampled under load."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import psutil

SAMPLER = Path(__file__).with_name("sampler")
WRITTEN_S = 20.0


def variables(folder: Path) -> dict[str, str]:
    """Give the variables by which a cluster's processes sample themselves, into a folder."""
    folder.mkdir(parents=True)
    return {"SIE_BENCH_SAMPLES": str(folder), "PYTHONPATH": str(SAMPLER)}


def profile(
    folder: Path, processes: Mapping[str, list[psutil.Process]], names: tuple[str, ...], load: Callable[[], object]
) -> dict[str, dict[str, float]]:
    """Return the shares of the parts of each program named, while `load` is at work."""
    sampled = {name: _busiest(processes[name]) for name in names}
    for each in sampled.values():
        each.send_signal(signal.SIGUSR1)
    load()
    for each in sampled.values():
        each.send_signal(signal.SIGUSR2)
    return {name: _shares(folder / f"{each.pid}.json") for name, each in sampled.items()}


def _busiest(found: list[psutil.Process]) -> psutil.Process:
    return max(found, key=lambda each: sum(each.cpu_times()[:2]))


def _shares(file: Path) -> dict[str, float]:
    end = time.monotonic() + WRITTEN_S
    while not file.exists():
        if time.monotonic() > end:
            raise RuntimeError(f"{file} was not written")
        time.sleep(0.01)
    samples: dict[str, int] = json.loads(file.read_text())
    whole = sum(samples.values()) or 1
    return {part: count / whole for part, count in sorted(samples.items(), key=lambda each: -each[1])}
