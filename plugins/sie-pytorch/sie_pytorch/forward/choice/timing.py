"""Times a runner on a short text and on a long batch, and says which of several is worth serving."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from sie_pytorch.forward.choice.probes import make_probe
from sie_pytorch.forward.protocol import Batch, Runner

ADVANTAGE = 1.15
"""Speed, relative to a runner of higher priority, from which a runner serves instead."""
CLEAR = 2.0
"""Lead, as a factor, with which the winner of a single race also serves later loads: work that takes half of the
machine makes a runner half as fast.
"""
SHORT = (16,)
"""Tokens of the short probe: one query."""
LONG = ((128,), MIXED := (128, 48, 200, 24, 112), MIXED * 4, MIXED * 16)
"""Tokens of the sequences of long probes, of 128, 512, 2048 and 8192 tokens together."""
LONG_S = 0.01
"""Seconds from which a pass over a long probe is long enough to be timed."""
LEAST_PASSES, LEAST_S, MOST_S = 4, 0.02, 0.25
"""A runner's fastest pass counts, of at least `LEAST_PASSES`, in at least `LEAST_S`; no pass begins after `MOST_S`."""


@dataclass(frozen=True, slots=True)
class Figures:
    """The speed of a runner: seconds of its fastest passes."""

    name: str
    short_s: float
    long_s: float

    def speedup(self, other: Figures) -> float:
        """Return how many times as fast as `other` it is: the geometric mean over both probes."""
        return math.sqrt(other.short_s / self.short_s * other.long_s / self.long_s)

    def best(self, other: Figures) -> Figures:
        """Take the faster of two measurements of one runner."""
        return Figures(self.name, min(self.short_s, other.short_s), min(self.long_s, other.long_s))


class Benchmark:
    """The probes for timing a model's runners; the first runner determines the length of the long one."""

    def __init__(self, model: Any, limit: int | None, device: torch.device) -> None:
        """Draw the probes.

        Args:
            model: transformers' base model; it is not kept.
            limit: Tokens of a sequence its positions allow.
            device: Device of the runners' ids.
        """
        self._short = make_probe(model, limit, device, SHORT)
        self._longer = [make_probe(model, limit, device, lengths) for lengths in LONG]
        self._long: Batch | None = None
        self._device = device

    @property
    def tokens(self) -> tuple[int, int]:
        """Tokens of the short probe and of the long one."""
        return len(self._short.ids), len((self._long or self._longer[0]).ids)

    def time(self, name: str, runner: Runner) -> Figures:
        """Time a runner on both probes."""
        short_s = self._fastest(runner, self._short)
        if self._long is None:
            self._long = self._longest(runner)
        return Figures(name, short_s, self._fastest(runner, self._long))

    def _longest(self, runner: Runner) -> Batch:
        """Take the first long probe that keeps the runner busy long enough, or the longest."""
        for probe in self._longer:
            if fastest(partial(self._pass, runner, probe), least_passes=1, least_s=0) >= LONG_S:
                return probe
        return self._longer[-1]

    def _fastest(self, runner: Runner, probe: Batch) -> float:
        return fastest(partial(self._pass, runner, probe))

    def _pass(self, runner: Runner, probe: Batch) -> float | None:
        """Run one pass to its end; on CUDA return its seconds on its stream: other streams are not waited for."""
        if self._device.type == "cuda":
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
            stream = torch.cuda.current_stream(self._device)
            begin.record(stream)
            runner.forward(probe)
            end.record(stream)
            end.synchronize()
            return float(begin.elapsed_time(end)) / 1000
        runner.forward(probe)
        if self._device.type == "mps":
            torch.mps.synchronize()
        return None


def fastest(
    run: Callable[[], float | None],
    clock: Callable[[], float] = time.perf_counter,
    *,
    least_passes: int = LEAST_PASSES,
    least_s: float = LEAST_S,
    most_s: float = MOST_S,
) -> float:
    """Return the seconds of the fastest of several passes; the first, which warms up, counts only if it is the only
    one.

    Args:
        run: Runs one pass to its end; returns its seconds, or None to use the clock.
        clock: Monotonic seconds.
        least_passes: Passes in addition to the first.
        least_s: Lower bound on the seconds of all passes together.
        most_s: Seconds after which no pass begins.
    """
    started = clock()
    took = run()
    before = clock()
    best, passes, first = math.inf, 0, before - started if took is None else took
    while before - started < most_s and (passes < least_passes or before - started < least_s):
        took = run()
        after = clock()
        best, passes, before = min(best, after - before if took is None else took), passes + 1, after
    return min(best, first) if passes == 0 else best


def winner(figures: Sequence[Figures]) -> Figures:
    """Choose among runners in the order of their priority: the first, unless another is `ADVANTAGE` times as fast."""
    first = figures[0]
    best = max(figures, key=lambda each: each.speedup(first))
    return best if best.speedup(first) >= ADVANTAGE else first


def described(figures: Sequence[Figures], tokens: tuple[int, int]) -> str:
    """Write the figures down for an operator."""
    first, *others = figures
    units = f" for {tokens[0]} tokens", f" for {tokens[1]} tokens"
    lines = [f"{first.name} {_ms(first.short_s)}{units[0]} and {_ms(first.long_s)}{units[1]}"]
    return ", ".join([*lines, *(f"{each.name} {_ms(each.short_s)} and {_ms(each.long_s)}" for each in others)])


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.3g} ms"
