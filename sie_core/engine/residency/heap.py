"""Gives freed memory back to the operating system. It must not know what was freed."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import cache


def trim_heap() -> None:
    """Have the C library let go of its free pages, where it is one that keeps them and can be told (glibc).

    What is freed between blocks that stay counts as used otherwise: 20 MB after a load, the weights after an unload.
    """
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@cache
def _malloc_trim() -> Callable[[int], object] | None:
    """Find it, once: ctypes leaves a cycle behind for every look-up."""
    return getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
