"""The compiled kernels' functions, as ctypes sees them."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

from sie_cpu.builds import Build, choose_build
from sie_cpu.structures import STRUCTURES, integer, pointer

ACTIVATIONS = {"gelu": 1, "gelu_new": 2, "gelu_pytorch_tanh": 2, "relu": 3, "silu": 4}
"""transformers' names of the activations the kernels know, and the kernels' own."""

INTERFACE = 10
"""Version that a library's `sie_interface` must return."""

NO_ROW = -2
"""Return code of `sie_encode` if an embedding table has no row for a token."""

STAGES = (
    "entering and leaving",
    "query, key, value",
    "rotation",
    "attention",
    "attention output",
    "attention norm",
    "up, activation",
    "down",
    "output norm",
)
"""Stages measured by the kernels' stopwatch, in the order of its counters."""


class Kernels:
    """One loaded build."""

    def __init__(self, build: Build) -> None:
        library = ctypes.CDLL(str(build.path))
        _require_agreement(library, build)
        self.name = build.name
        self.precision = build.precision
        for name in ("lanes", "panel", "step", "weight_bytes"):
            getattr(library, f"sie_{name}").restype = integer
        self.lanes: int = library.sie_lanes()
        self.panel: int = library.sie_panel()
        self.step: int = library.sie_step()
        self.weight_bytes: int = library.sie_weight_bytes()
        self.pack = library.sie_pack
        self.pack.argtypes = (pointer, integer, integer, pointer)
        self.pack.restype = None
        self._encode = library.sie_encode
        self._encode.argtypes = (
            pointer,  # encoder
            *(pointer, pointer, pointer, pointer),  # embeddings, ids, types, positions
            *(pointer, pointer, pointer, integer),  # states, offsets, keys, sequences
            pointer,  # angles
            *(pointer, integer),  # low-rank factors, the widest
            *(integer, pointer),  # threads, counters
            *(pointer, integer),  # workspace, its bytes
        )
        self._encode.restype = integer

    def encode(self, *arguments: Any) -> int:
        """Run all layers, with the arguments of `sie_encode`.

        Returns:
            0, or if the workspace is too small for it the bytes wanted, and nothing is done.

        Raises:
            MemoryError: No memory is left for the plan of the batch.
            IndexError: The embeddings have no row for a token.
        """
        wanted: int = self._encode(*arguments)
        if wanted == NO_ROW:
            raise IndexError("a token, its type or its position is beyond the embeddings")
        if wanted < 0:
            raise MemoryError("the kernels found no memory for the plan of a batch")
        return wanted


def _require_agreement(library: ctypes.CDLL, build: Build) -> None:
    """Refuse a library with other functions or structures: it would read and write beyond its arguments.

    Raises:
        OSError: It is of another version.
    """
    again = f"{build.library} was built for another version of sie-cpu: install sie-cpu again"
    if not hasattr(library, "sie_interface") or library.sie_interface() != INTERFACE:
        raise OSError(again)
    library.sie_size_of.argtypes, library.sie_size_of.restype = (integer,), integer
    for place, structure in enumerate(STRUCTURES):
        size = library.sie_size_of(place)
        if size != ctypes.sizeof(structure):
            raise OSError(f"{again} (its {structure.__name__} takes {size} bytes, not {ctypes.sizeof(structure)})")


@cache
def load_kernels(build: Build) -> Kernels:
    """Load a build once.

    Raises:
        OSError: It cannot be loaded, or is of another version.
    """
    return Kernels(build)


def kernels_for(precision: str) -> Kernels:
    """Load the fastest build that computes in `precision` and runs on this processor.

    Raises:
        OSError: None was built, none runs here, or it is of another version; the message says which.
    """
    return load_kernels(choose_build(precision))
