"""Turns what PyTorch and the libraries below it raise about a device into the contract's errors, for every plugin.

Errors are recognised by their texts and codes, so that no library is imported.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from sie_core.contracts.errors import DeviceLost, OutOfDeviceMemory

OUT_OF_MEMORY = re.compile(
    r"out of memory|can't allocate memory|cannot allocate memory|not enough memory|"
    r"could not create a primitive(?! descriptor)",
    re.IGNORECASE,
)
"""Texts of allocators, the system and oneDNN for lack of memory; oneDNN reports a descriptor if it lacks a kernel."""

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
alike and its manual has the process ended.

HIP words its errors likewise.
"""
RUNTIMES = ("CUDA error: ", "HIP error: ")


@contextmanager
def device_errors() -> Iterator[None]:
    """Raise errors of the device as `OutOfDeviceMemory` or `DeviceLost`, also if a library wrapped them."""
    try:
        yield
    except Exception as error:
        fault = device_fault(error)
        if fault is None or fault is error:
            raise
        raise fault from error


def device_fault(error: BaseException) -> OutOfDeviceMemory | DeviceLost | None:
    """Return the device error that `error` or one of its causes represents; None if none does."""
    met: set[int] = set()
    each: BaseException | None = error
    while each is not None and id(each) not in met:
        if (fault := _fault(each)) is not None:
            return fault
        met.add(id(each))
        each = each.__cause__ or (None if each.__suppress_context__ else each.__context__)
    return None


def _fault(error: BaseException) -> OutOfDeviceMemory | DeviceLost | None:
    if isinstance(error, OutOfDeviceMemory | DeviceLost):
        return error
    name = type(error).__name__
    if isinstance(error, MemoryError) or name == "OutOfMemoryError":
        return OutOfDeviceMemory("The device ran out of memory.")
    if not isinstance(error, RuntimeError | OSError) and name != "SafetensorError":
        return None  # the text of other exceptions may come from a request
    if (why := _lost(error)) is not None:
        return DeviceLost(why)
    return OutOfDeviceMemory("The device ran out of memory.") if OUT_OF_MEMORY.search(str(error)) else None


def _lost(error: BaseException) -> str | None:
    """Return the error's name if it means a lost device. Old versions of PyTorch have only its text, no code."""
    code = getattr(error, "error_code", None)
    if code in CONTEXT_LOST:
        return CONTEXT_LOST[code]
    said = str(error)
    if not any(runtime in said for runtime in RUNTIMES):
        return None
    return next((words for words in CONTEXT_LOST.values() if words in said), None)
