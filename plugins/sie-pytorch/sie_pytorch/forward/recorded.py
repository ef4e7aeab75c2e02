"""Memory of recorded passes (CUDA graphs): PyTorch counts it as cached, and frees it only with the recordings."""

from __future__ import annotations

import threading
import weakref
from typing import Any, Final, Protocol

RECORDING: Final = threading.RLock()
"""Held while a pass is recorded, while caches are freed, which would end a recording, and while recordings go."""


class Recordings(Protocol):
    """The recorded passes of one model."""

    @property
    def index(self) -> int:
        """The number of their CUDA device."""
        ...

    @property
    def held_bytes(self) -> int:
        """Bytes of its memory that they hold in addition to tensors."""
        ...

    def give_back(self) -> None:
        """Drop them all; called with `RECORDING` held, on any thread."""
        ...


_all: Final[weakref.WeakSet[Any]] = weakref.WeakSet()


def register_recordings(recordings: Recordings) -> None:
    """Count recordings from now on, for as long as they live."""
    with RECORDING:
        _all.add(recordings)


def held_bytes(index: int) -> int:
    """Return the bytes of a device that recordings hold in addition to tensors."""
    return sum(each.held_bytes for each in _on(index))


def give_back(index: int) -> None:
    """Drop the recordings of a device; their memory is then cached as that of tensors is."""
    with RECORDING:
        for each in _on(index):
            each.give_back()


def _on(index: int) -> list[Recordings]:
    return [each for each in tuple(_all) if each.index == index]
