"""How much an adapter process is sent ahead of what it runs, and whose slices are next once it has room."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from sie_cluster.sidecar.held import Slice

TOGETHER = 12
"""Slices of one key that leave at once: they may share a batch."""


class Ahead:
    """The cost that waits at an adapter process, in batches: what it reported last, and what it was sent since.

    Args:
        batch_bytes: Bytes of items that make about a batch.
    """

    def __init__(self, batch_bytes: int) -> None:
        self._batch_bytes = batch_bytes
        self._unreported: deque[int] = deque()
        self._unreported_bytes = self._received = 0
        self._queued = 0.0

    @property
    def batches(self) -> float:
        """Batches that wait."""
        return self._queued + self._unreported_bytes / self._batch_bytes

    def sent(self, cost: int) -> None:
        """Count a slice that was sent, of so many bytes."""
        self._unreported.append(cost)
        self._unreported_bytes += cost

    def reported(self, received: int, queued: float) -> None:
        """Take a report: so many slices had come, and so many batches were queued then."""
        while self._unreported and self._received < received:
            self._unreported_bytes -= self._unreported.popleft()
            self._received += 1
        self._queued = queued

    def clear(self) -> None:
        """Begin anew: the adapter process, or the connection to it, is another."""
        self._unreported.clear()
        self._unreported_bytes = self._received = 0
        self._queued = 0.0


class Turns:
    """Slices that wait for room at the adapter process. Keys take turns, so that none waits behind all of another."""

    def __init__(self) -> None:
        self._of_key: dict[object, dict[Slice, None]] = {}
        self._keys: dict[Slice, object] = {}

    def __bool__(self) -> bool:
        return bool(self._keys)

    def add(self, held: Slice) -> None:
        """Have a slice wait; one that runs alone shares its turn with no other."""
        key = self._keys[held] = held if held.alone else held.head.key
        self._of_key.setdefault(key, {})[held] = None

    def remove(self, held: Slice) -> None:
        """Have a slice wait no more, where it does."""
        if held in self._keys:
            key = self._keys.pop(held)
            of_key = self._of_key[key]
            del of_key[held]
            if not of_key:
                del self._of_key[key]

    @property
    def next_is_alone(self) -> bool:
        """Whether the next slice shares the adapter process with no other."""
        return self._is_alone(next(iter(self._of_key)))

    def pass_over_alone(self) -> bool:
        """Have those that run alone wait behind the others; False where there are no others."""
        for key in list(self._of_key):
            if not self._is_alone(key):
                return True
            self._of_key[key] = self._of_key.pop(key)
        return False

    def prefer(self, is_wanted: Callable[[object], bool]) -> bool:
        """Have the first key that is wanted leave next; False where there is none before one that runs alone."""
        for key, of_key in self._of_key.items():
            if self._is_alone(key):
                return False
            if is_wanted(key):
                self._of_key = {key: of_key, **self._of_key}
                return True
        return False

    def take(self, most_bytes: int) -> list[Slice]:
        """Take the slices that leave next: up to `TOGETHER` of one key, and up to so many bytes unless one has more.

        Its others wait behind the other keys.
        """
        key, of_key = next(iter(self._of_key.items()))
        taken: list[Slice] = []
        size = 0
        for held in list(of_key)[:TOGETHER]:
            size += held.head.cost
            if taken and size > most_bytes:
                break
            taken.append(held)
            self.remove(held)
        if key in self._of_key:
            self._of_key[key] = self._of_key.pop(key)
        return taken

    def _is_alone(self, key: object) -> bool:
        """Whether a turn is that of one slice: what was so at first, though it is delivered again while it waits."""
        return isinstance(key, Slice)
