"""Bounds the bytes of fetched payloads that a process holds, whoever they belong to."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable


class Room:
    """Bytes held by owners. Who came first always goes on, so that owners cannot wait for one another.

    It holds at most `most_bytes`, and what the first owner takes beyond them. Used on the event loop.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._of: dict[Hashable, int] = {}
        self._waiting: set[asyncio.Future[None]] = set()

    @property
    def held_bytes(self) -> int:
        """Bytes of all owners."""
        return sum(self._of.values())

    async def enter(self, owner: Hashable, size: int) -> bool:
        """Wait for room for so many bytes more of an owner; False where it has left meanwhile."""
        self._of.setdefault(owner, 0)
        while owner in self._of:
            if self.held_bytes + size <= self._most or next(iter(self._of)) is owner:
                self._of[owner] += size
                return True
            left = asyncio.get_running_loop().create_future()
            self._waiting.add(left)
            try:
                await left
            finally:
                self._waiting.discard(left)
        return False

    def leave(self, owner: Hashable) -> None:
        """Hold nothing of an owner any more."""
        if self._of.pop(owner, None) is not None:
            for waiting in self._waiting:
                if not waiting.done():
                    waiting.set_result(None)
