"""Memory of large answers, used again for the next ones.

A block of tens of megabytes that is new costs its page faults: up to thirty times as long as to copy as many bytes, and
while the system makes a large page nothing else runs on that core.
"""

from __future__ import annotations

import sys
import threading
import time
from math import inf
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
        """Give memory of so many bytes as it is; it is used again once nobody has it, or a view of it.

        Less than `STEP` is new each time, and not counted: the C library uses it again itself.
        """
        if size < STEP:
            return np.empty(size, np.uint8)
        with self._lock:
            return self._take(size)  # whose names would make others count a block as used

    def release(self, unused_s: float = KEPT_S) -> None:
        """Keep no block that nobody uses and that was last given out so long ago, and of others what may be kept."""
        with self._lock:
            self._forget(self._free(), self._kept_bytes, time.monotonic() - unused_s)

    def _take(self, size: int) -> Block:
        free = self._free()
        fitting = min((block for block in free if size <= len(block) <= 2 * size), key=len, default=None)
        if fitting is None:
            self._forget(free, self._kept_bytes - size)
            fitting = np.empty(-(-size // STEP) * STEP, np.uint8)
            self._blocks.append(fitting)
        self._given[id(fitting)] = time.monotonic()
        return fitting[:size]

    def _free(self) -> list[Block]:
        # Whoever uses a block has a view of it, which refers to it.
        return [block for block, count in zip(self._blocks, _references(self._blocks), strict=True) if count == _UNUSED]

    def _forget(self, free: list[Block], kept_bytes: int, before: float = -inf) -> None:
        """Forget blocks that nobody uses: those given out `before`, and the oldest of those beyond `kept_bytes`."""
        left, forgotten = sum(map(len, free)), set()
        for block in sorted(free, key=lambda block: self._given[id(block)]):
            if left <= kept_bytes and self._given[id(block)] > before:
                break
            left -= len(block)
            del self._given[id(block)]
            forgotten.add(id(block))
        self._blocks = [block for block in self._blocks if id(block) not in forgotten]


BLOCKS: Final = Blocks()
"""Of the process."""
