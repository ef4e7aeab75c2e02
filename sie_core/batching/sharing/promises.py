"""Room on a device, reserved for requests that were refused and told when to come back."""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass, field
from math import ceil
from typing import Final

# Time is promised in steps of so many seconds, of each so much: what comes back is then spread evenly.
STEP_S: Final = 0.25
FILL: Final = 0.85
# How long room is kept for a request that does not come back.
LATE_S: Final = 2.0
# No promise is made for later: few clients wait so long.
FARTHEST_S: Final = 120.0
# Whether a request came back weighs so much less with each later one.
_MEMORY: Final = 0.95
_A_SECOND: Final = round(1 / STEP_S)
# Clients' clocks and pauses are not exact.
_EARLY_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class _Full:
    # Every whole second from the step `start` to the step `end`, which is none of them, has no room for so many.
    start: int
    end: int
    seconds: float


@dataclass(slots=True)
class _Step:
    booked_s: float = 0.0
    # What is kept free for whom: the seconds of each request that has not come back yet.
    awaited: list[tuple[Hashable, float]] = field(default_factory=list)
    # Their sum: every request with a deadline asks for it, and hundreds may be awaited.
    awaited_s: float = 0.0


class Promises:
    """Times of the device, promised step by step. Pure; `now` never decreases."""

    def __init__(self) -> None:
        self._steps: defaultdict[int, _Step] = defaultdict(_Step)
        self._by_token: dict[Hashable, list[int]] = {}
        # The share of requests that came back when they were told to, the latest counting most. Only so much of what is
        # promised is kept free: the device must not idle for requests that do not come.
        self._kept = 1.0
        self._lapsed = 0
        # By the quarter of a second: where there was no room for the last request. It does not become free again, and
        # under overload hundreds a second look for the end of two minutes that are promised.
        self._full: dict[int, _Full] = {}

    def make(self, token: Hashable, free_at: float, seconds: float, now: float) -> float:
        """Promise a request `seconds` of the device, not before `free_at`; return the seconds until it may come back.

        They are whole ones, as `Retry-After` states them.
        """
        self._lapse(now)
        wait = max(1, ceil(free_at - now))
        if wait < FARTHEST_S:
            wait = self._free(now, wait, seconds)
        if wait < FARTHEST_S:
            first = step = int((now + wait) / STEP_S)
            self._steps[first].awaited.append((token, seconds))
            self._steps[first].awaited_s += seconds
            insort(self._by_token.setdefault(token, []), first)  # a later promise may be for an earlier time
            while seconds > 0:
                self._steps[step].booked_s += min(seconds, STEP_S)
                seconds, step = seconds - STEP_S, step + 1
        return float(wait)

    def keep(self, token: Hashable, now: float) -> bool:
        """Whether a request comes back as it was told to; it is promised nothing any more."""
        if not self.is_due(token, now):
            return False
        step = self._steps[self._forget(token)]
        awaited = next(each for each in step.awaited if each[0] == token)
        step.awaited.remove(awaited)
        step.awaited_s = step.awaited_s - awaited[1] if step.awaited else 0.0  # rounding does not add up
        self._kept = _MEMORY * self._kept + 1 - _MEMORY
        return True

    def is_due(self, token: Hashable, now: float) -> bool:
        """Whether a request would come back as it was told to."""
        if not self._by_token:
            return False
        self._lapse(now)
        mine = self._by_token.get(token)
        return mine is not None and mine[0] * STEP_S <= now + _EARLY_S

    def due_s(self, now: float, until: float) -> float:
        """Return the seconds of the device to keep free for who is to come back by `until`."""
        self._lapse(now)
        farthest = now + 2 * FARTHEST_S  # nobody is promised anything beyond, and `until` may be any number
        steps = range(self._lapsed, int(min(until, farthest) / STEP_S) + 1)
        if len(steps) < len(self._steps):  # most are for later than a deadline of a second or two
            return self._kept * sum(self._steps[step].awaited_s for step in steps if step in self._steps)
        return self._kept * sum(each.awaited_s for step, each in self._steps.items() if step in steps)

    def _free(self, now: float, wait: int, seconds: float) -> int:
        # Return the whole seconds, from `wait` on, after which there is room for so many, or nobody is promised any.
        start = step = int((now + wait) / STEP_S)
        last, full = start + (ceil(FARTHEST_S) - wait) * _A_SECOND, self._full.get(start % _A_SECOND)
        if full is not None and full.start <= start < full.end and full.seconds <= seconds:
            start, step = full.start, full.end
        while step < last and not self._fits(step, seconds):
            step += _A_SECOND
        self._full[start % _A_SECOND] = _Full(start, step, seconds)
        return wait + (step - int((now + wait) / STEP_S)) // _A_SECOND

    def _fits(self, step: int, seconds: float) -> bool:
        booked = self._steps[step].booked_s if step in self._steps else 0.0
        return not booked or booked + min(seconds, STEP_S) <= FILL * STEP_S

    def _forget(self, token: Hashable) -> int:
        mine = self._by_token[token]
        step = mine.pop(0)
        if not mine:
            del self._by_token[token]
        return step

    def _lapse(self, now: float) -> None:
        oldest = int((now - LATE_S) / STEP_S)
        if oldest == self._lapsed:
            return
        self._lapsed = oldest
        for step in [each for each in self._steps if each < oldest]:
            for token, _ in self._steps.pop(step).awaited:
                self._forget(token)
                self._kept *= _MEMORY
