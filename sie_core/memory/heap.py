"""Returns what glibc's heap keeps free to the operating system."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import sys
from functools import cache
from pathlib import Path
from typing import Any, Final

LOOK_S: Final = 2.0
"""Seconds between two looks at how much the process has grown."""
WORTH: Final = 16 * 2**20
"""Bytes that it must have grown by; less is not worth the walk through the heap."""


def trim_heap() -> None:
    """Return the free pages to the operating system.

    Otherwise freed memory between blocks that stay counts as used: 20 MB after a load, all weights after an unload.
    """
    library = _library()
    if library is not None:
        library.malloc_trim(0)


def settle_heap() -> None:
    """After a load: make its objects old ones, which Python's garbage collection seldom looks at, and `trim_heap`.

    The first load imports libraries with hundreds of thousands of objects. The next pass over young objects would visit
    all of them, and stop every request for 200 ms.
    """
    gc.collect(1)
    trim_heap()


async def keep_trimmed(look_s: float = LOOK_S) -> None:
    """Trim the heap whenever the process has grown by `WORTH`: large requests leave free pages, too. Never returns."""
    least = _resident()
    while True:
        await asyncio.sleep(look_s)
        least = min(least, _resident())
        if _resident() >= least + WORTH:
            await asyncio.to_thread(trim_heap)
            least = _resident()


def _resident() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


@cache
def _library() -> Any:
    # Look it up once: every look-up by ctypes leaves a reference cycle. Other C libraries lack the function.
    library: Any = ctypes.CDLL(None) if sys.platform == "linux" else None
    return library if hasattr(library, "malloc_trim") else None
