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
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final

log = logging.getLogger(__name__)

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # of malloc.h
BOUNDS: Final = {"MALLOC_ARENA_MAX": (_ARENA_MAX, (4,))}
"""The options that are set, by the variable with which an operator sets them, each with its values: the heaps there
are. Blocks of megabytes stay on the heap: returned as soon as they are freed, they cost PyTorch's batches of 32 texts a
sixth of their pace."""
KEEPING: Final = {
    "MALLOC_MMAP_THRESHOLD_": (_MMAP_THRESHOLD, (64 * 2**20, 32 * 2**20)),
    "MALLOC_TRIM_THRESHOLD_": (_TRIM_THRESHOLD, (128 * 2**20,)),
}
"""What is also set by a program that passes large answers on: from which size on a block is returned as soon as it is
freed, and how much may be free at a heap's end. Each answer beyond 32 MB would cost 5 to 30 ms of page faults to have
its memory again. An engine does not set it: `malloc_trim` leaves the ends of its threads' heaps as they are, up to 64
MB each.

Of several values the first counts that glibc takes: before 2.35 it refuses more than 32 MB."""
LOOK_S: Final = 2.0
"""Between two looks whether there is something to return."""
WORTH: Final = 32 * 2**20
"""Bytes that the process has grown since the last time; less is not worth the walk through the heap."""


def bound_heap(*, keeps_large: bool = False) -> None:
    """Set `BOUNDS`, except what the operator has set; call it before threads are started.

    Args:
        keeps_large: Whether to set `KEEPING`, too.
    """
    library = _library()
    for variable, (option, values) in {**BOUNDS, **(KEEPING if keeps_large else {})}.items():
        if library is not None and variable not in os.environ:
            any(library.mallopt(option, value) for value in values)


def trim_heap() -> None:
    """Return the free pages to the operating system.

    Otherwise freed memory between blocks that stay counts as used: 20 MB after a load, all weights after an unload.
    """
    library = _library()
    if library is not None:
        library.malloc_trim(0)


def settle_heap() -> None:
    """After a load: make its objects old ones, which Python's garbage collection seldom looks at, and `trim_heap`.

    The first load imports libraries with hundreds of thousands of objects. The next pass over young ones would look at
    all of them, and stop everything for 200 ms while requests are served.
    """
    gc.collect(1)
    trim_heap()


async def keep_trimmed(busy: Callable[[], bool], look_s: float = LOOK_S) -> None:
    """Trim the heap whenever the process has grown and `busy` says that nothing large is at work. Never returns."""
    least = _resident()
    while True:
        await asyncio.sleep(look_s)
        least = min(least, _resident())
        if _library() is not None and not busy() and _resident() >= least + WORTH:
            try:
                await asyncio.to_thread(trim_heap)
            except (RuntimeError, MemoryError):  # no memory for a thread just now
                log.warning("the heap could not be trimmed; it is tried again in %g s", look_s, exc_info=True)
                continue
            least = _resident()


def _resident() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


@cache
def _library() -> Any:
    # Look it up once: every look-up by ctypes leaves a reference cycle. Other C libraries lack these functions.
    library = ctypes.CDLL(None) if sys.platform == "linux" else None
    return library if hasattr(library, "mallopt") and hasattr(library, "malloc_trim") else None
