"""The memory of fakes: counted on the emulated accelerator, really allocated elsewhere."""

from __future__ import annotations

from threading import Lock
from typing import Protocol

import numpy as np

from sie_core.contracts import Device, OutOfDeviceMemory

TOTAL = 2**30


class Held(Protocol):
    """A block of memory, held until it is released."""

    def free(self) -> None:
        """Release it."""


class EmulatedMemory:
    """The memory of the emulated accelerator. Safe to use from any thread; `peak` is the most ever in use."""

    def __init__(self, total: int = TOTAL) -> None:
        self.total = total
        self.used = 0
        self.peak = 0
        self._lock = Lock()

    def allocate(self, size: int) -> Held:
        """Take `size` bytes.

        Raises:
            OutOfDeviceMemory: Not enough is left.
        """
        with self._lock:
            if self.used + size > self.total:
                raise OutOfDeviceMemory(f"{size} bytes asked for, {self.total - self.used} are free")
            self.used += size
            self.peak = max(self.peak, self.used)
        return _Counted(self, size)

    def give_back(self, size: int) -> None:
        """Count `size` bytes as free."""
        with self._lock:
            self.used -= size


MEMORY = EmulatedMemory()
"""The memory of this process."""


class _Counted:
    def __init__(self, memory: EmulatedMemory, size: int) -> None:
        self._memory = memory
        self._size = size

    def free(self) -> None:
        self._memory.give_back(self._size)
        self._size = 0


class _Allocated:
    def __init__(self, size: int) -> None:
        self._block = np.ones(size, dtype=np.uint8)

    def free(self) -> None:
        self._block = np.empty(0, dtype=np.uint8)


def allocate(size: int, device: Device) -> Held:
    """Take `size` bytes of a device: counted on the emulated accelerator, memory of the process elsewhere.

    Raises:
        OutOfDeviceMemory: Not enough is left.
    """
    return MEMORY.allocate(size) if device.kind == "fake" else _Allocated(size)
