"""Bounds the cost and bytes of prepared, unanswered work, and decides which request may prepare its next slice."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final

MIB: Final = 2**20
"""Bytes of a mebibyte."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits in cost units and bytes. They can be exceeded by at most one slice per preparing thread."""

    # Bounds on the waiting work of all multi-slice requests; beyond them no further slice is prepared. Single-slice
    # requests are not subject to them.
    sliced_cost: int
    sliced_bytes: int = 128 * MIB
    # Bound on the waiting bytes of one multi-slice request.
    request_bytes: int = 16 * MIB
    # Bound on the waiting bytes of all requests; beyond it no request prepares its first slice.
    all_bytes: int = 256 * MIB


@dataclass(slots=True)
class _Held:
    cost: int = 0
    nbytes: int = 0
    slices: int = 0


class Room:
    """Counts the units of requests between their preparation and the end of their run. Used from any thread."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._lock = threading.Lock()
        # Per request that has entered and was not forgotten.
        self._held: dict[Hashable, _Held] = {}
        # Requests that wait for room: their callback, the most cost they may hold, what they hold.
        self._parked: dict[Hashable, tuple[Callable[[], None], int, _Held]] = {}
        # Totals of all requests, and of those with several slices.
        self._all, self._sliced = _Held(), _Held()

    def held(self) -> tuple[int, int]:
        """Return the cost units and the bytes that all requests hold."""
        with self._lock:
            return self._all.cost, self._all.nbytes

    def enter(self, request: Hashable, ahead: int, resume: Callable[[], None]) -> bool:
        """Whether a request may prepare a slice now: it holds less than `ahead` cost units, and there is room.

        Otherwise `resume` is called once it may.
        """
        with self._lock:
            held = self._held.setdefault(request, _Held())
            if self._free(held, ahead, *self._open()):
                return True
            self._parked[request] = resume, ahead, held
            return False

    def take(self, request: Hashable, cost: int, nbytes: int) -> None:
        """Count a slice of a request."""
        with self._lock:
            held = self._held.setdefault(request, _Held())
            held.slices += 1
            if held.slices == 2:
                self._sliced.cost += held.cost
                self._sliced.nbytes += held.nbytes
            self._count(held, cost, nbytes)

    def give(self, request: Hashable, cost: int, nbytes: int) -> None:
        """Release units of a request; the units of a forgotten request are already released."""
        with self._lock:
            held = self._held.get(request)
            if held is not None:
                self._count(held, -cost, -nbytes)
        self.wake()

    def forget(self, request: Hashable) -> None:
        """Count nothing of a request any more, and let it wait no longer."""
        with self._lock:
            self._parked.pop(request, None)
            held = self._held.pop(request, None)
            if held is None:
                return  # it never entered, so skip looking for a waiting request
            if held.cost or held.nbytes:
                self._count(held, -held.cost, -held.nbytes)
        self.wake()

    def wake(self) -> None:
        """Let the first that waits and has room go on. It wakes the next when it has prepared its slice."""
        with self._lock:
            if not self._parked:
                return
            new, more = self._open()
            waiting = self._parked.items() if new or more else ()
            request = next((each for each, (_, ahead, held) in waiting if self._free(held, ahead, new, more)), None)
            resume = None if request is None else self._parked.pop(request)[0]
        if resume is not None:
            resume()

    def _open(self) -> tuple[bool, bool]:
        # Whether there is room for the first slice of a request, and for further ones.
        bounds, sliced = self._bounds, self._sliced
        further = sliced.cost < bounds.sliced_cost and sliced.nbytes < bounds.sliced_bytes
        return self._all.nbytes < bounds.all_bytes, further

    def _free(self, held: _Held, ahead: int, new: bool, more: bool) -> bool:
        if not held.slices:
            return new
        return more and held.cost < ahead and held.nbytes < self._bounds.request_bytes

    def _count(self, held: _Held, cost: int, nbytes: int) -> None:
        for each in (held, self._all, self._sliced)[: 3 if held.slices > 1 else 2]:
            each.cost += cost
            each.nbytes += nbytes
