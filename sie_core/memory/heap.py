"""glibc's heap: few arenas, and their free pages returned to the operating system."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from functools import cache
from typing import Any, Final

ARENA_MAX: Final = 4
"""glibc's arenas. Each keeps up to 64 MB of freed memory, and without a bound there are eight a core."""
_M_ARENA_MAX: Final = -8  # of malloc.h


def bound_arenas() -> None:
    """Bound glibc's arenas to `ARENA_MAX`, unless `MALLOC_ARENA_MAX` is set; call it before threads are started."""
    library = _library()
    if library is not None and "MALLOC_ARENA_MAX" not in os.environ:
        library.mallopt(_M_ARENA_MAX, ARENA_MAX)


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


@cache
def _library() -> Any:
    # Look it up once: every look-up by ctypes leaves a reference cycle. Other C libraries lack the functions.
    library: Any = ctypes.CDLL(None) if sys.platform == "linux" else None
    return library if hasattr(library, "malloc_trim") else None
