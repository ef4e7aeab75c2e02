"""A device's memory errors as the contract's. It knows no model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from sie_core.contracts import OutOfDeviceMemory

OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "not enough memory", "could not create a primitive")
"""How a CPU's and MPS's allocators say it, and oneDNN, which finds no room for a kernel; all raise a RuntimeError."""


@contextmanager
def memory_errors() -> Iterator[None]:
    """Turn PyTorch's ways of running out of memory into `OutOfDeviceMemory`."""
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise OutOfDeviceMemory("The device ran out of memory.") from error
    except RuntimeError as error:
        if any(sign in str(error) for sign in OUT_OF_MEMORY):
            raise OutOfDeviceMemory("The device ran out of memory.") from error
        raise
