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
        self._left = asyncio.Event()
        """Set with the next owner that leaves, and then another one."""

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
            await self._left.wait()
        return False

    def leave(self, owner: Hashable) -> None:
        """Hold nothing of an owner any more."""
        if self._of.pop(owner, None) is not None:
            self._left.set()
            self._left = asyncio.Event()
