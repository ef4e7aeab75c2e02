"""What PyTorch raises of a device, as the contract's errors. It knows no model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from sie_core.contracts import DeviceLost, OutOfDeviceMemory

OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "not enough memory", "could not create a primitive")
"""How a CPU's and MPS's allocators say it, and oneDNN, which finds no room for a kernel; all raise a RuntimeError."""

CONTEXT_LOST = {
    214: "uncorrectable ECC error encountered",
    220: "uncorrectable NVLink error detected during the execution",
    700: "an illegal memory access was encountered",
    702: "the launch timed out and was terminated",
    709: "context is destroyed",
    710: "device-side assert triggered",
    714: "hardware stack error",
    715: "an illegal instruction was encountered",
    716: "misaligned address",
    717: "operation not supported on global/shared address space",
    718: "invalid program counter",
    719: "unspecified launch failure",
}
"""Errors of the CUDA runtime (`cudaError_t`, with what `cudaGetErrorString` says) after which every later call fails
alike and its manual has the process ended. HIP words its own so too."""
RUNTIMES = ("CUDA error: ", "HIP error: ")


@contextmanager
def device_errors() -> Iterator[None]:
    """Turn PyTorch's ways of running out of memory into `OutOfDeviceMemory`, of losing the device into `DeviceLost`."""
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise OutOfDeviceMemory("The device ran out of memory.") from error
    except RuntimeError as error:
        if (why := _lost(error)) is not None:
            raise DeviceLost(why) from error
        if any(sign in str(error) for sign in OUT_OF_MEMORY):
            raise OutOfDeviceMemory("The device ran out of memory.") from error
        raise


def _lost(error: RuntimeError) -> str | None:
    """Name the error where it means that the device is lost; old versions of PyTorch give no code, only words."""
    code = getattr(error, "error_code", None)
    if code in CONTEXT_LOST:
        return CONTEXT_LOST[code]
    said = str(error)
    if not any(runtime in said for runtime in RUNTIMES):
        return None
    return next((words for words in CONTEXT_LOST.values() if words in said), None)
