"""glibc's heap: bounded from the start, and what is free of it returned to the operating system.

As it comes, glibc keeps what large requests leave behind: freed blocks of up to 32 MB stay in the heap for the next
ones, and each of many threads has a heap of its own. A server that has answered a few large requests then holds several
hundred MB that nobody uses.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, Final

from sie_core.concurrency.blocks import BLOCKS

log = logging.getLogger(__name__)

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # of malloc.h
HEAPS: Final = 4
BOUNDS: Final = {
    "MALLOC_ARENA_MAX": (_ARENA_MAX, (HEAPS,)),
    "MALLOC_MMAP_THRESHOLD_": (_MMAP_THRESHOLD, (32 * 2**20,)),
    "MALLOC_TRIM_THRESHOLD_": (_TRIM_THRESHOLD, (64 * 2**20,)),
}
"""The options that are set, by the variable with which an operator sets them, each with its values: the heaps there
are, from which size on a block is returned as soon as it is freed, and how much may be free at a heap's end. The sizes
are those that glibc comes to by itself once it has returned a block of 32 MB.

Blocks of megabytes stay on the heap: returned as soon as they are freed, they cost PyTorch's batches of 32 texts a
sixth of their pace."""
KEEPING: Final = {
    "MALLOC_MMAP_THRESHOLD_": (_MMAP_THRESHOLD, (64 * 2**20, 32 * 2**20)),
    "MALLOC_TRIM_THRESHOLD_": (_TRIM_THRESHOLD, (128 * 2**20,)),
}
"""What a program sets instead that passes large answers on. Each answer beyond 32 MB would cost 5 to 30 ms of page
faults to have its memory again. In an engine it would add to the peak of large requests.

Of several values the first counts that glibc takes: before 2.35 it refuses more than 32 MB."""
FREED: Final = 256 * 2**10
"""Bytes of a block whose return makes glibc look at the end of its heap; it does from 64 kB on."""
START_S: Final = 30.0
"""How long threads may take to start."""
LOOK_S: Final = 2.0
"""Between two looks whether there is something to return."""
WORTH: Final = 32 * 2**20
"""Bytes that the process has grown since the last time; less is not worth the walk through the heap."""


def bound_heap(*, keeps_large: bool = False) -> None:
    """Set `BOUNDS`, except what the operator has set; call it before threads are started.

    Args:
        keeps_large: Whether to set what `KEEPING` says, in place of `BOUNDS`.
    """
    library = _library()
    if library is None:
        return
    bounds = BOUNDS | KEEPING if keeps_large else BOUNDS
    for variable, (option, values) in bounds.items():
        if variable not in os.environ:
            any(library.mallopt(option, value) for value in values)
    if "MALLOC_TRIM_THRESHOLD_" not in os.environ:
        _ENDS.start(library, bounds["MALLOC_TRIM_THRESHOLD_"][1][0])


def trim_heap() -> None:
    """Return the free pages to the operating system.

    Otherwise freed memory between blocks that stay counts as used: 20 MB after a load, all weights after an unload.
    """
    library = _library()
    if library is not None:
        library.malloc_trim(0)
        _ENDS.trim(library)


def settle_heap() -> None:
    """After a load: make its objects old ones, which Python's garbage collection seldom looks at, and `trim_heap`.

    The first load imports libraries with hundreds of thousands of objects. The next pass over young ones would look at
    all of them, and stop everything for 200 ms while requests are served.
    """
    gc.collect(1)
    trim_heap()


async def keep_trimmed(busy: Callable[[], bool], look_s: float = LOOK_S) -> None:
    """Trim the heap whenever the process has grown and `busy` says that nothing large is at work. Never returns.

    Blocks that nobody has used for a while are given back with it.
    """
    least = _resident()
    while True:
        await asyncio.sleep(look_s)
        BLOCKS.release()
        least = min(least, _resident())
        if _library() is not None and not busy() and _resident() >= least + BLOCKS.held_bytes + WORTH:
            try:
                await asyncio.to_thread(trim_heap)
            except (RuntimeError, MemoryError):  # no memory for a thread just now
                log.warning("the heap could not be trimmed; it is tried again in %g s", look_s, exc_info=True)
                continue
            least = max(0, _resident() - BLOCKS.held_bytes)


class _Ends:
    """Returns what is free at the ends of threads' heaps, up to 64 MB each: `malloc_trim` leaves them as they are.

    glibc looks at the end of a heap when a block of it is freed, and returns what is beyond the trim threshold. So a
    small block of each heap is kept: it grows and shrinks while the threshold is low, and stays on its heap as it does.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blocks: list[int] = []
        self._threshold = 0

    def start(self, library: Any, threshold: int) -> None:
        """Take blocks of every heap, which threads that are alive at the same time get in turn.

        Args:
            library: The C library.
            threshold: What the trim threshold is set to.
        """
        with self._lock:
            self._threshold = threshold
            if not self._blocks:
                together = threading.Barrier(2 * HEAPS, timeout=START_S)

                def take(_: int) -> int:
                    block: int = library.malloc(FREED)  # a small one may come from another thread, which freed it here
                    together.wait()
                    return self._shrunk(library, block)

                with ThreadPoolExecutor(2 * HEAPS) as threads:
                    try:
                        self._blocks = list(threads.map(take, range(2 * HEAPS)))
                    except RuntimeError:  # the system grants no more threads
                        together.abort()
                        log.warning("free memory at the ends of threads' heaps will not be returned", exc_info=True)

    def trim(self, library: Any) -> None:
        """Return what is free at the ends; nothing before `start`."""
        with self._lock:
            if self._blocks:
                library.mallopt(_TRIM_THRESHOLD, FREED)
                grown = [library.realloc(block, FREED) or block for block in self._blocks]
                self._blocks = [self._shrunk(library, block) for block in grown]
                library.mallopt(_TRIM_THRESHOLD, self._threshold)

    @staticmethod
    def _shrunk(library: Any, block: int) -> int:
        return library.realloc(block, 1) or block


_ENDS: Final = _Ends()


def _resident() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


@cache
def _library() -> Any:
    # Look it up once: every look-up by ctypes leaves a reference cycle. Other C libraries lack these functions.
    library: Any = ctypes.CDLL(None) if sys.platform == "linux" else None
    if not hasattr(library, "mallopt") or not hasattr(library, "malloc_trim"):
        return None
    library.malloc.argtypes, library.malloc.restype = [ctypes.c_size_t], ctypes.c_void_p
    library.realloc.argtypes, library.realloc.restype = [ctypes.c_void_p, ctypes.c_size_t], ctypes.c_void_p
    return library
