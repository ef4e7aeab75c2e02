"""The loads of one device: which wait, which are at work on it, and the bytes that those are expected to take."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sie_core.contracts import LoadStatus


@dataclass(slots=True, eq=False)
class Load:
    """One load, from the moment it queues for its turn."""

    who: str
    at_work_since: float | None = None
    # Whether no other load has been at work on the device at the same time.
    alone: bool = True


class Loads:
    """The loads under way on one device. Event loop only.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._loads: list[Load] = []
        self.reserved = 0
        """Bytes that the loads at work are expected to take."""

    @contextmanager
    def queued(self, who: str) -> Iterator[Load]:
        """List a load as under way."""
        load = Load(who)
        self._loads.append(load)
        try:
            yield load
        finally:
            self._loads.remove(load)

    @contextmanager
    def at_work(self, load: Load, expected_bytes: int) -> Iterator[None]:
        """List a queued load as at work on the device, and reserve its bytes."""
        if others := [each for each in self._loads if each.at_work_since is not None]:
            for each in (load, *others):
                each.alone = False
        load.at_work_since = self._clock()
        self.reserved += expected_bytes
        try:
            yield
        finally:
            self.reserved -= expected_bytes

    def status(self) -> list[LoadStatus]:
        """List the loads that wait for their turn or for room, and those at work on the device."""
        now = self._clock()
        return [
            LoadStatus(each.who, None if each.at_work_since is None else now - each.at_work_since)
            for each in self._loads
        ]
