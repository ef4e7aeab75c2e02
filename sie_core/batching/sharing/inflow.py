"""How much of the device goes to requests that come later and run sooner, as they are smaller for their weight."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, frexp
from typing import Final

# What came so many seconds ago counts for a third of what comes now.
MEMORY_S: Final = 4.0
# The share of the device that a large request is predicted to get at least, however many small ones come.
LEAST_SHARE: Final = 0.2


@dataclass(slots=True)
class _Rate:
    # Seconds of the device a second, as of a time.
    share: float = 0.0
    at: float = 0.0

    def now(self, now: float) -> float:
        return self.share * exp((self.at - now) / MEMORY_S)


class Inflow:
    """The rate of admitted work by the turns of its requests, in powers of two. Pure; `now` never decreases.

    A turn is the seconds of a request over its weight: the fair order serves the shortest first.
    """

    def __init__(self) -> None:
        self._rates: dict[int, _Rate] = {}

    def record(self, seconds: float, weight: float, now: float) -> None:
        """Count a request of a weight that will take so many seconds of the device."""
        rate = self._rates.setdefault(_size(seconds / weight), _Rate())
        rate.share, rate.at = rate.now(now) + seconds / MEMORY_S, now

    def left(self, seconds: float, weight: float, now: float) -> float:
        """Return the share of the device that shorter turns leave to a request of so many seconds.

        Those of the next shorter length are of its own where the device is a little slower than it was.
        """
        smaller = _size(seconds / weight) - 1
        return max(LEAST_SHARE, 1 - sum(rate.now(now) for size, rate in self._rates.items() if size < smaller))


def _size(turn: float) -> int:
    return frexp(turn)[1]
