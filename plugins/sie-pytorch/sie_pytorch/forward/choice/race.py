"""The race of one load: every runner that proves itself is timed, and the one worth serving is made."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from sie_core.contracts import DeviceLost, device_fault
from sie_pytorch.forward.choice.candidates import PACKED, Candidate
from sie_pytorch.forward.choice.factory import CandidateFactory, Proven
from sie_pytorch.forward.choice.timing import CLEAR, Benchmark, Figures, described, winner

logger = logging.getLogger(__name__)

RACE_S = 10.0
"""Seconds after which no further runner enters."""


class Race:
    """The runners of one model that were timed. One is in memory at a time."""

    def __init__(self, factory: CandidateFactory) -> None:
        self._factory = factory
        self._benchmark = Benchmark(factory.context.model, factory.references.limit, factory.device)
        self._entered: dict[Candidate, Figures] = {}
        self._latest: Proven | None = None
        self.whole = True
        """Whether every candidate had its turn; the result of an incomplete race is not kept for later loads."""

    def run(self, fast: Sequence[Candidate], last: Sequence[Candidate]) -> Proven:
        """Time the candidates and make the winner.

        Args:
            fast: The registered runners, by priority.
            last: The padded ones. They drive the model's classes as `packed` does, and pad: the first that proves
                itself enters if `packed` is refused.

        Raises:
            ModelLoadError, PrecisionLost: No candidate proves itself.
        """
        end = time.monotonic() + RACE_S
        for candidate in fast:
            if self._factory.rounds_too_much:
                break
            if self._entered and time.monotonic() > end:
                self._factory.refused.append(f"not {candidate.name}: the race was over after {RACE_S:.0f} s")
                self.whole = False
            else:
                self._enter(candidate)
        if not (self._factory.rounds_too_much or any(each.name == PACKED for each in self._entered)):
            for candidate in last:
                if self._entered and time.monotonic() > end:
                    self.whole = False
                    break
                if self._enter(candidate):
                    break
        if not self._entered:
            raise self._factory.failure()
        first = next(iter(self._entered))
        if self._winner() is not first:
            self._enter(first)  # once more: a busy moment may have slowed it down
        return self._made(self._winner())

    @property
    def clear(self) -> bool:
        """Whether the winner leads so clearly that no busy moment can be the cause."""
        figures = list(self._entered.values())
        best = winner(figures)
        return all(best.speedup(each) >= CLEAR for each in figures if each is not best)

    def __str__(self) -> str:
        return described(list(self._entered.values()), self._benchmark.tokens)

    def _enter(self, candidate: Candidate) -> bool:
        """Prove a runner and time it; False if it is refused."""
        self._latest = None  # frees the one before
        proven = self._factory.attempt(candidate)
        if proven is None:
            return False
        try:
            figures = self._benchmark.time(candidate.name, proven.runner)
        except Exception as fault:  # a runner may be anyone's: its fault costs only itself
            if isinstance(device_fault(fault), DeviceLost):
                raise
            logger.warning("The %s runner failed while it was timed", candidate.name, exc_info=True)
            self._factory.refused.append(f"not {candidate.name}: it failed with {type(fault).__name__} on long batches")
            return False
        self._latest = proven
        self._entered[candidate] = figures.best(self._entered.get(candidate, figures))
        return True

    def _winner(self) -> Candidate:
        best = winner(list(self._entered.values()))
        return next(candidate for candidate, figures in self._entered.items() if figures is best)

    def _made(self, candidate: Candidate) -> Proven:
        if self._latest is None or self._latest.candidate is not candidate:
            self._latest = None
            self._latest = self._factory.attempt(candidate)
        if self._latest is None:  # it passed a moment ago
            raise self._factory.failure()
        return self._latest
