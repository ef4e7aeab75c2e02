"""Lists the users of a device's memory: residents, which can be evicted, and loads. Event loop only."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from sie_core.concurrency.leases import Leases
from sie_core.contracts import HeldModel, LoadStatus

# The weight of the last load in the mean of the times that loads wait for room.
ROOM_SHARE = 0.25
# An overdue load is expected to take this much longer, as a share of its time so far.
OVERDUE_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class Resident:
    """A loaded model or LoRA adapter, which holds the device's memory."""

    # The resident as a memory manager sees it.
    held: HeldModel
    # Called with seconds: evicts it once it has no lease; False if one is still held then.
    evict: Callable[[float], Awaitable[bool]]


def held_model(what: str, leases: Leases, memory_bytes: int, loaded_at: float, load_s: float, **more: Any) -> HeldModel:
    """Describe the object of `leases` to a memory manager; `more` are further fields."""
    used, uses, served = leases.last_used, leases.count, leases.served
    return HeldModel(what, memory_bytes, loaded_at, load_s=load_s, last_used=used, uses=uses, served=served, **more)


@dataclass(slots=True, eq=False)
class Load:
    """One load, from the moment it queues for its turn."""

    who: str
    # Seconds of work on the device.
    expected_s: float
    at_work_since: float | None = None
    # Whether no other load has worked on the device at the same time.
    alone: bool = True


class Loads:
    """The current loads on one device: those that wait for their turn or for room, and those working on the device."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._loads: list[Load] = []
        # Seconds that loads wait for room once it is their turn, as a moving mean.
        self._room_s = 0.0
        # Bytes that the working loads are expected to take.
        self.reserved = 0

    @contextmanager
    def queued(self, who: str, expected_s: float) -> Iterator[Load]:
        """List a load as under way."""
        load = Load(who, expected_s)
        self._loads.append(load)
        try:
            yield load
        finally:
            self._loads.remove(load)

    @contextmanager
    def at_work(self, load: Load, expected_bytes: int) -> Iterator[None]:
        """List a queued load as working on the device, and reserve its bytes."""
        if others := [each for each in self._loads if each.at_work_since is not None]:
            for each in (load, *others):
                each.alone = False
        load.at_work_since = self._clock()
        self.reserved += expected_bytes
        try:
            yield
        finally:
            self.reserved -= expected_bytes

    def found_room(self, load: Load, waited_s: float) -> None:
        """Learn how long a load waited for room after its turn had come.

        The wait counts up to the time that the load takes. Longer waits are not learned: they come from clients that
        were asked to retry too late, and learning them would delay the next clients even more.
        """
        self._room_s += ROOM_SHARE * (min(waited_s, load.expected_s) - self._room_s)

    def turn_s(self, who: str) -> float:
        """Predict the seconds until a load is at work: after those before it, after all if it is not listed."""
        left_s, now = self._room_s, self._clock()
        for each in takewhile(lambda each: each.who != who, self._loads):
            if each.at_work_since is None:
                left_s += self._room_s + each.expected_s
            else:
                left_s += left_of(each.expected_s, now - each.at_work_since)
        return left_s

    def status(self) -> list[LoadStatus]:
        """Describe the loads, in the order they came."""
        now = self._clock()
        return [
            LoadStatus(each.who, None if each.at_work_since is None else now - each.at_work_since)
            for each in self._loads
        ]


def left_of(expected_s: float, elapsed_s: float) -> float:
    """Return the remaining seconds; an overdue load is expected to take 25 % of its elapsed time more."""
    return expected_s - elapsed_s if elapsed_s < expected_s else elapsed_s * OVERDUE_SHARE
