"""Memory outside the heap: releases the pages of weights that are views of files, and allocates large tensors in
mappings.

The kernel reads a page of a mapped file when it is first touched, and counts it as the process's from then on.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

MAPS = Path("/proc/self/maps")


@dataclass(frozen=True, slots=True)
class MappedFiles:
    """The memory regions in which weights are views of a checkpoint's safetensors; none on systems that do not report
    them.
    """

    places: tuple[tuple[int, int], ...] = ()
    """First address and the one after the last of each mapping."""
    held: tuple[torch.UntypedStorage, ...] = ()
    """A weight's memory in each mapping: while it is held, the mapping stays and its addresses are not reused."""

    @classmethod
    def of(cls, folder: Path, weights: Iterable[torch.Tensor]) -> MappedFiles:
        """Look up the files of `folder`, once `weights` were read from them."""
        files = {str(file.resolve()) for file in folder.glob("*.safetensors")}
        try:
            lines = MAPS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
        except OSError:
            return cls()
        entries = (line.split(maxsplit=5) for line in lines)
        places = [_place(entry[0]) for entry in entries if len(entry) == 6 and entry[5] in files]
        storages = [weight.untyped_storage() for weight in weights]
        found = {}
        for low, high in places:
            within = (storage for storage in storages if low <= storage.data_ptr() < high)
            if (holder := next(within, None)) is not None:
                found[low, high] = holder
        return cls(tuple(found), tuple(found.values()))

    def release(self, weights: Iterable[torch.Tensor]) -> None:
        """Release the pages of those `weights` that are views of the files, and touch no others.

        They stay valid: the next access reads them from the file again. They must never have been written.
        """
        for weight in weights:
            start, stop = weight.data_ptr(), weight.data_ptr() + weight.nbytes
            if any(low <= start and stop <= high for low, high in self.places):
                first, end = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE, stop // mmap.PAGESIZE * mmap.PAGESIZE
                if first < end:
                    _madvise()(first, end - first, mmap.MADV_DONTNEED)


UNMAPPED = MappedFiles()
"""For weights that are views of no file."""


def outside_heap(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Allocate zeros in a separate mapping, for large tensors made while the heap is in use.

    glibc up to 2.37 reuses few of the holes that aligned blocks leave: weights that are cast and rearranged one by one
    in the heap leave their size again in holes.

    Raises:
        MemoryError: The system has no room.
    """
    if sys.platform == "win32":
        return torch.zeros(shape, dtype=dtype)
    size = max(1, math.prod(shape) * dtype.itemsize)
    try:
        mapping = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"{size} bytes cannot be mapped ({error.strerror}).") from error
    return torch.frombuffer(mapping, dtype=torch.uint8)[: math.prod(shape) * dtype.itemsize].view(dtype).view(shape)


def _place(addresses: str) -> tuple[int, int]:
    start, _, stop = addresses.partition("-")
    return int(start, 16), int(stop, 16)


@cache
def _madvise() -> Any:
    function = ctypes.CDLL(None).madvise
    function.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return function
