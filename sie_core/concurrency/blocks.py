"""Memory of large answers, used again for the next ones.

A block of tens of megabytes that is new costs its page faults: up to thirty times as long as to copy as many bytes, and
while the system makes a large page nothing else runs on that core.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import Final

import numpy as np
from numpy.typing import NDArray

Block = NDArray[np.uint8]

STEP: Final = 1 << 20
"""Blocks have whole megabytes, so that the next answer fits where it is a little longer."""
KEPT_BYTES: Final = 128 << 20
"""Of blocks that nobody uses."""
KEPT_S: Final = 10.0
"""How long after it was last given out a block is kept that nobody uses."""


def _references(blocks: list[Block]) -> list[int]:
    return [sys.getrefcount(block) for block in blocks]


_UNUSED: Final = _references([np.empty(0, np.uint8)])[0]
"""References that are counted of a block in a list that nobody uses: releases of Python differ in that."""


class Blocks:
    """Blocks that are kept for a while once nobody uses them. Used from any thread."""

    def __init__(self, kept_bytes: int = KEPT_BYTES) -> None:
        self._kept_bytes = kept_bytes
        self._lock = threading.Lock()
        self._blocks: list[Block] = []
        self._given: dict[int, float] = {}
        """When each block was last given out, by its `id`."""

    @property
    def held_bytes(self) -> int:
        """Bytes of all blocks, used or not."""
        with self._lock:
            return sum(map(len, self._blocks))

    def take(self, size: int) -> Block:
        """Give memory of so many bytes as it is; it is used again once nobody has it, or a view of it."""
        with self._lock:
            free = self._free()
            fitting = min((block for block in free if size <= len(block) <= 2 * size), key=len, default=None)
            if fitting is None:
                self._make_room(free, size)
                fitting = np.empty(-(-size // STEP) * STEP, np.uint8)
                self._blocks.append(fitting)
            self._given[id(fitting)] = time.monotonic()
            return fitting[:size]

    def release(self, unused_s: float = KEPT_S) -> None:
        """Keep no block that nobody uses and that was last given out so long ago."""
        before = time.monotonic() - unused_s
        with self._lock:
            for block in self._free():
                if self._given[id(block)] <= before:
                    self._forget(block)

    def _free(self) -> list[Block]:
        # Whoever uses a block has a view of it, which refers to it.
        return [block for block, count in zip(self._blocks, _references(self._blocks), strict=True) if count == _UNUSED]

    def _make_room(self, free: list[Block], size: int) -> None:
        """Forget blocks that nobody uses, the oldest first, as far as they are more than is kept beside a new one."""
        kept = size + sum(map(len, free))
        for block in sorted(free, key=lambda block: self._given[id(block)]):
            if kept <= self._kept_bytes:
                return
            kept -= len(block)
            self._forget(block)

    def _forget(self, block: Block) -> None:
        del self._given[id(block)]
        self._blocks = [each for each in self._blocks if each is not block]


BLOCKS: Final = Blocks()
"""Of the process."""
