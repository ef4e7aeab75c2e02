"""The places of requests that wait for a model to load: a load that hangs must not take those of other models."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import inf


class WaitingPlaces:
    """Counts the requests that wait, and the bytes of their bodies, by model.

    One model may fill the places. For models that come then there are as many again, of which each gets at most half
    of what the others left: however many loads hang, the next model finds a place.

    Args:
        places: The most requests that may wait where nobody else does.
        most_bytes: The same of the bytes of their bodies; None for no limit.
    """

    def __init__(self, places: int, most_bytes: float | None = None) -> None:
        self._places = places
        self._most_bytes = inf if most_bytes is None else most_bytes
        self.requests = self.nbytes = 0
        self._by_model: dict[str, tuple[int, int]] = {}

    @contextmanager
    def take(self, model: str, size: int) -> Iterator[bool]:
        """Count a request to a model, with a body of `size` bytes, as waiting; False where it may not wait."""
        requests, nbytes = self._by_model.get(model, (0, 0))
        if not (
            _fits(requests + 1, self.requests + 1, self._places)
            and _fits(nbytes + size, self.nbytes + size, self._most_bytes)
        ):
            yield False
            return
        self._count(model, 1, size)
        try:
            yield True
        finally:
            self._count(model, -1, -size)

    def _count(self, model: str, requests: int, nbytes: int) -> None:
        own = self._by_model.pop(model, (0, 0))
        self.requests, self.nbytes = self.requests + requests, self.nbytes + nbytes
        if own[0] + requests:
            self._by_model[model] = own[0] + requests, own[1] + nbytes


def _fits(own: int, total: int, limit: float) -> bool:
    # Beyond the limit: at most half of what the others left of twice the limit.
    return total <= limit or own + total <= 2 * limit
