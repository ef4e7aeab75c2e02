"""Returns what glibc's heap keeps free to the operating system."""

from __future__ import annotations

import ctypes
import gc
import sys
from functools import cache
from typing import Any


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
    # Look it up once: every look-up by ctypes leaves a reference cycle. Other C libraries lack the function.
    library: Any = ctypes.CDLL(None) if sys.platform == "linux" else None
    return library if hasattr(library, "malloc_trim") else None
