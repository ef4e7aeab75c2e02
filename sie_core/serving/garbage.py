"""How often Python looks for cycles, and how many arenas the C library has, as every program of SIE has it."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

COLLECT_EVERY: Final = (50_000, 20, 100)
"""Thresholds of Python's garbage collection. With its own, torch and transformers cost a full pass over 400 000 objects
every few seconds under load, in which everything stands still for 200 ms, and a quarter of the time a load takes; young
objects alone cost a process that only serves HTTP an eighth of its CPU. Reference counts free what requests leave
behind; cycles are rare."""

ARENA_MAX: Final = 4
"""glibc's arenas. Each keeps up to 64 MB of freed memory, and without a bound there are eight a core."""
_M_ARENA_MAX: Final = -8
"""The number of this option in glibc's malloc.h."""


def collect_seldom() -> None:
    """Set the thresholds; before anything large is imported, models are loaded and requests come."""
    gc.set_threshold(*COLLECT_EVERY)


def keep_imported() -> None:
    """Leave what has been imported out of every pass from now on: it stays until the end of the process."""
    gc.freeze()


def bound_arenas() -> None:
    """Bound glibc's arenas to `ARENA_MAX`, unless `MALLOC_ARENA_MAX` is set; before threads are started."""
    if sys.platform == "linux" and "MALLOC_ARENA_MAX" not in os.environ:
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # other C libraries lack it
        if mallopt is not None:
            mallopt(_M_ARENA_MAX, ARENA_MAX)


@contextmanager
def uncollected() -> Iterator[None]:
    """Look for no cycles while a block makes many objects that stay: each pass would go through all of them."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
