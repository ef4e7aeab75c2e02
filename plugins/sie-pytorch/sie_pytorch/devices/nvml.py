"""GPU memory as reported by the NVIDIA driver (NVML): counts all processes, and needs no CUDA context.

The driver's library is loaded at the first call, and no method raises.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

log = logging.getLogger(__name__)

TOLERANCE = 0.1
"""Largest relative difference between the driver's and CUDA's size of a device; CUDA's excludes memory reserved by the
driver.

A larger difference means another device: a slice of a GPU (MIG) and the GPU itself may have the same address.
"""


class DriverMemory:
    """The memory of CUDA devices as the driver reports it. Its methods are called from any thread."""

    def __init__(self) -> None:
        self._handles: dict[int, Any] = {}
        self._failed = False
        self._told = False

    def free_and_total(self, index: int, properties: Any) -> tuple[int, int] | None:
        """Return the free and total bytes of a device; None if the driver cannot tell.

        Args:
            index: PyTorch's number of the device.
            properties: PyTorch's properties of the device, which identify it whatever order `CUDA_VISIBLE_DEVICES`
                imposes.
        """
        if self._failed:
            return None
        try:
            if index not in self._handles:
                self._handles[index] = self._find(properties)
            return _ask(self._handles[index], properties.total_memory)
        except Exception as error:
            self._handles.pop(index, None)
            if not self._told:
                self._told = True
                log.info("NVML does not tell the memory of cuda:%d (%r); PyTorch's numbers are taken", index, error)
            return None

    def _find(self, properties: Any) -> Any:
        try:
            import pynvml

            pynvml.nvmlInit()
        except Exception:
            self._failed = True  # no driver library, or one that does not match the driver: that will not change
            raise
        failure: Exception = LookupError("NVML lists no such device")
        for by, address in _addresses(properties):
            try:
                handle = getattr(pynvml, by)(address)
                _ask(handle, properties.total_memory)
            except Exception as error:
                failure = error
            else:
                return handle
        raise failure


def _addresses(properties: Any) -> Iterator[tuple[str, str]]:
    """List NVML's functions that may find the device, with what each takes."""
    uuid = getattr(properties, "uuid", None)
    if uuid is not None:
        bare = str(uuid).removeprefix("GPU-").removeprefix("MIG-")
        yield "nvmlDeviceGetHandleByUUID", f"GPU-{bare}"
        yield "nvmlDeviceGetHandleByUUID", f"MIG-{bare}"
    if hasattr(properties, "pci_bus_id"):
        place = (properties.pci_domain_id, properties.pci_bus_id, properties.pci_device_id)
        yield "nvmlDeviceGetHandleByPciBusId", "{:08X}:{:02X}:{:02X}.0".format(*place)


def _ask(handle: Any, size: int) -> tuple[int, int]:
    import pynvml

    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    if abs(memory.total - size) > TOLERANCE * size:
        raise LookupError(f"NVML's device has {memory.total} bytes, and CUDA's {size}")
    return memory.free, memory.total
