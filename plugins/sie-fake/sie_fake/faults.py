"""Faults on demand: slow and failing loads, slow runs, out of memory, crashes, NaN.

Every fault appears as the real one would; without a fault, answers are correct.
"""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sie_core.contracts import (
    DeviceLost,
    ItemOutput,
    LoadContext,
    LoadFailure,
    ModelLoadError,
    OutOfDeviceMemory,
    preemption_point,
)

HOLD_LIMIT_S = 300.0
"""Bounds a run that is held and that nobody lets go; it is longer than a test holds one."""
LAYERS = 12
"""Layers of a slow run, as in a small encoder."""
PART_S = 0.0015
"""Seconds of a layer between two preemption points, as in the kernels of `sie-cpu`."""
EXIT_STATUS = 70

_failed_loads: Counter[str] = Counter()
_failed_loads_lock = Lock()


@dataclass(frozen=True, slots=True)
class LoadFaults:
    """Faults of a load."""

    seconds: float = 0.0
    hold: str | None = None
    failure: LoadFailure | None = None
    times: int | None = None

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> LoadFaults:
        """Read the options of a profile's `loadtime`."""
        return cls(
            options.get("load_s", 0.0),
            options.get("load_hold"),
            options.get("load_failure"),
            options.get("load_failure_times"),
        )

    def strike(self, context: LoadContext) -> None:
        """Wait for the configured time, then fail as configured.

        Raises:
            ModelLoadError: A typed failure.
            OutOfDeviceMemory: The failure `OOM`.
            RuntimeError: The failure `UNKNOWN`: an error that a family did not foresee.
        """
        started = time.monotonic()
        wait_while_held(self.hold)
        time.sleep(self.seconds)
        context.stage("weights", time.monotonic() - started)
        if self.failure is None or not self._due(context.model.id):
            return
        if self.failure == "OOM":
            raise OutOfDeviceMemory(f"{context.model.id} does not fit, as its config asks")
        if self.failure == "UNKNOWN":
            raise RuntimeError(f"{context.model.id} broke while loading, as its config asks")
        raise ModelLoadError(self.failure, f"{context.model.id} cannot be loaded, as its config asks: {self.failure}")

    def _due(self, model: str) -> bool:
        with _failed_loads_lock:
            if self.times is not None and _failed_loads[model] >= self.times:
                return False
            _failed_loads[model] += 1
            return True


@dataclass(frozen=True, slots=True)
class RunFaults:
    """Faults of the runs of one loaded model."""

    hold: str | None = None
    oom_above_cost: int | None = None
    oom_every: int | None = None
    leak_bytes: int = 0
    exit_text: str | None = None
    _runs: count[int] = field(default_factory=lambda: count(1))
    _leaked: list[NDArray[np.uint8]] = field(default_factory=list)

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> RunFaults:
        """Read the options of a profile's `loadtime`."""
        return cls(
            options.get("run_hold"),
            options.get("oom_above_cost"),
            options.get("oom_every"),
            options.get("leak_bytes", 0),
            options.get("exit_text"),
        )

    def strike(self, texts: Sequence[str], cost: int, options: Mapping[str, Any]) -> None:
        """Wait and fail as configured, on the device thread.

        Raises:
            OutOfDeviceMemory: The run is too large, its turn has come, or a text asks for it.
            DeviceLost: A text asks for it.
            RuntimeError: A text asks for a crash.
        """
        wait_while_held(self.hold)
        turn = next(self._runs)
        if self.oom_above_cost is not None and cost > self.oom_above_cost:
            raise OutOfDeviceMemory(f"a run of cost {cost}, above {self.oom_above_cost}")
        if self.oom_every and turn % self.oom_every == 0:
            raise OutOfDeviceMemory(f"run {turn}")
        for text in texts:
            if _contains(text, self.exit_text):
                os._exit(EXIT_STATUS)
            if _contains(text, options.get("oom_text")):
                raise OutOfDeviceMemory("a text asks for it")
            if _contains(text, options.get("lost_text")):
                raise DeviceLost("a text asks for it")
            crash(text, options.get("crash_text"), "run")

    def linger(self, cost: int, options: Mapping[str, Any], pause: Callable[[float], None] = time.sleep) -> None:
        """Sleep for the duration of a run of `cost`, and leak as configured; may be preempted between its parts."""
        if self.leak_bytes:
            self._leaked.append(np.ones(self.leak_bytes, dtype=np.uint8))
        seconds = (options.get("latency_ms", 0.0) + cost * options.get("latency_ms_per_cost", 0.0)) / 1000
        point = preemption_point()
        if point is None:
            pause(seconds)
            return
        parts, late = max(LAYERS, math.ceil(seconds / PART_S)), 0.0
        for _ in range(parts):
            began = time.monotonic()
            pause(max(0.0, seconds / parts - late))
            late += time.monotonic() - began - seconds / parts  # so that many short parts take as long as few
            point()


def crash(text: str, marker: str | None, stage: str) -> None:
    """Raise if `text` contains `marker`.

    Raises:
        RuntimeError: As a bug in a family would.
    """
    if _contains(text, marker):
        raise RuntimeError(f"{stage} crashed, as the text asks")


def exhaust(text: str, marker: str | None, stage: str) -> None:
    """Run out of memory if `text` contains `marker`.

    Raises:
        MemoryError: As NumPy's allocations raise it.
    """
    if _contains(text, marker):
        raise MemoryError(f"{stage} is out of memory, as the text asks")


def poison(output: ItemOutput, text: str, marker: str | None) -> ItemOutput:
    """Put NaN into every output if `text` contains `marker`."""
    if _contains(text, marker):
        if output.dense is not None:
            output.dense[0] = np.nan
        if output.multivector is not None:
            output.multivector[0, 0] = np.nan
        if output.sparse is not None:
            output.sparse = replace(output.sparse, values=np.full_like(output.sparse.values, np.nan))
        if output.score is not None:
            output.score = math.nan
        if output.entities is not None:
            output.entities = tuple(replace(entity, score=math.nan) for entity in output.entities)
    return output


def wait_while_held(file: str | None) -> None:
    """Wait while `file` exists.

    Raises:
        RuntimeError: It still does after 60 s.
    """
    if file is None:
        return
    until = time.monotonic() + HOLD_LIMIT_S
    while Path(file).exists():
        if time.monotonic() > until:
            raise RuntimeError(f"held by {file} for {HOLD_LIMIT_S:.0f} s")
        time.sleep(0.002)


def _contains(text: str, marker: str | None) -> bool:
    return bool(marker) and str(marker) in text
