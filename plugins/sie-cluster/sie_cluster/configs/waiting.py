"""Deltas that came and wait for their turn, bounded by their bytes."""

from __future__ import annotations

import asyncio
from collections import deque

MOST_BYTES = 1 << 26


class Waiting:
    """A queue of payloads, of one event loop."""

    def __init__(self) -> None:
        self._payloads: deque[bytes] = deque()
        self._bytes = 0
        self._came = asyncio.Event()

    def put(self, payload: bytes) -> bool:
        """Add a payload; False where there is no room, and it is not added."""
        if self._bytes + len(payload) > MOST_BYTES:
            return False
        self._payloads.append(payload)
        self._bytes += len(payload)
        self._came.set()
        return True

    async def get(self) -> bytes:
        """Take the oldest, once there is one."""
        while not self._payloads:
            self._came.clear()
            await self._came.wait()
        payload = self._payloads.popleft()
        self._bytes -= len(payload)
        return payload
