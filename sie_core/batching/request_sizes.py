"""How long requests take by their size, as others of that size did: short ones teach nothing about long ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import Final

Point = tuple[float, float]
"""The size of a request, and the seconds that one of it takes."""

# A request is like those that were measured up to so many times their size: as a batch may grow by so much at a time.
ALIKE: Final = 8.0
# A measured batch weighs this much less with each later one of requests of its size.
_MEMORY: Final = 0.9
# So many batches tell how long those take that run in parts: the first parts are small, as nothing is known of them.
_PARTS: Final = 3
# A size counts as not measured once so many batches of others ran: it may be slower or faster by now.
_LONG_AGO: Final = 128


def request_s(points: Sequence[Point], size: float, alike: float = ALIKE) -> float:
    """Return the seconds of a request at least, by measured ones; 0 where there are none.

    Between two sizes the seconds are interpolated. A size beyond `alike` times the largest counts as `alike` times it:
    it takes no less, and more was not measured.

    Args:
        points: The measured sizes, in their order.
        size: That of the request.
        alike: Times the largest size up to which requests take so many times as long.
    """
    if not points:
        return 0.0
    for (small, small_s), (large, large_s) in pairwise(points):
        if small < size <= large:
            return small_s + (large_s - small_s) * (size - small) / (large - small)
    nearest, seconds = points[0] if size <= points[0][0] else points[-1]
    return seconds * min(size / nearest, alike)


@dataclass(slots=True)
class _Measured:
    # Batches of requests of about one size: cost units, seconds, and sizes by cost, all fading.
    cost: float = 0.0
    seconds: float = 0.0
    sizes: float = 0.0
    loaded: bool = False
    # Whether more was left of its requests than ran: they run in parts, and so do larger ones.
    cut: bool = False
    batches: int = 0
    # The number of the last one, among all of the model.
    last: int = 0

    @property
    def known(self) -> bool:
        return not self.cut or self.batches >= _PARTS

    @property
    def point(self) -> Point:
        size = self.sizes / self.cost
        return size, self.seconds / self.cost * size


class RequestTimes:
    """How long the requests of a model take while others wait, by powers of two of their cost."""

    def __init__(self) -> None:
        self._measured: dict[int, _Measured] = {}
        self._points: list[Point] = []
        self._alike = ALIKE
        self._batches = 0

    def record(self, cost: int, seconds: float, *, requests: int, left: int, loaded: bool) -> None:
        """Record a batch.

        Args:
            cost: Of the batch.
            seconds: How long it ran.
            requests: Of whom it held units.
            left: The cost of their units that still wait.
            loaded: Whether it left others waiting. Batches that did not count for sizes without one that did.
        """
        self._batches += 1
        size = (cost + left) / requests
        before = self._measured.get(int(size).bit_length()) or _Measured()
        if before.loaded and not loaded:
            return
        fade = _MEMORY if before.loaded == loaded else 0.0
        self._measured[int(size).bit_length()] = _Measured(
            before.cost * fade + cost,
            before.seconds * fade + seconds,
            before.sizes * fade + cost * size,
            loaded,
            left > cost,
            before.batches + 1,
            self._batches,
        )
        self._measured = {key: each for key, each in self._measured.items() if each.last + _LONG_AGO > self._batches}
        known = [each for _, each in sorted(self._measured.items()) if each.known]
        self._points, self._alike = [each.point for each in known], inf if known and known[-1].cut else ALIKE

    def seconds(self, cost: float, requests: float = 1.0) -> float:
        """Return how long so many cost units of so many requests take at least; 0 before the first measurement."""
        return requests * request_s(self._points, cost / requests, self._alike) if requests else 0.0
