"""CUDA and MPS devices. PyTorch is imported at the first call of a probe, and only where such a device can exist."""

from __future__ import annotations

import sys
from pathlib import Path

from sie_core.contracts import Device, DeviceMemory
from sie_pytorch.devices.nvml import DriverMemory
from sie_pytorch.forward import recorded

DEVICE_FILES = tuple(Path("/dev") / name for name in ("nvidiactl", "nvidia0", "nvmap", "dxg", "kfd"))
"""At least one exists wherever a Linux process can reach a device: NVIDIA, Jetson, WSL, ROCm."""


class CudaProbe:
    """Finds CUDA devices, ROCm's among them."""

    kind = "cuda"
    priority = 200

    def __init__(self) -> None:
        self._driver = DriverMemory()

    def devices(self) -> list[Device]:
        """List the CUDA devices."""
        if sys.platform == "linux" and not any(path.exists() for path in DEVICE_FILES):
            return []
        try:
            import torch

            if not torch.cuda.is_available():
                return []
            return [
                Device("cuda", index, torch.cuda.get_device_name(index), asynchronous=True)
                for index in range(torch.cuda.device_count())
            ]
        except (ImportError, RuntimeError, AssertionError):
            return []

    def memory(self, device: Device) -> DeviceMemory:
        """Measure the memory of the whole device, in bytes: other processes' use counts.

        The driver is asked first, then CUDA. Memory that PyTorch caches counts as free. `own` counts its tensors and
        recorded passes, without the driver's own part.
        """
        import torch

        own = torch.cuda.memory_allocated(device.index) + recorded.held_bytes(device.index)
        kept = torch.cuda.memory_reserved(device.index) - own
        properties = torch.cuda.get_device_properties(device.index)
        told = self._driver.free_and_total(device.index, properties)
        free, total = told or torch.cuda.mem_get_info(device.index)
        return DeviceMemory(max(0, total - free - kept), total, own)

    def free_caches(self, device: Device) -> None:
        """Release PyTorch's cached blocks and recorded passes, which are recorded anew when needed, to the driver."""
        import torch

        with recorded.RECORDING, torch.cuda.device(device.index):
            recorded.give_back(device.index)
            torch.cuda.empty_cache()


class MpsProbe:
    """Finds the GPU of an Apple chip."""

    kind = "mps"
    priority = 100

    def devices(self) -> list[Device]:
        """List the one possible device."""
        if sys.platform != "darwin":
            return []
        try:
            import torch

            return [Device("mps", name="Apple GPU")] if torch.backends.mps.is_available() else []
        except (ImportError, RuntimeError):
            return []

    def memory(self, device: Device) -> DeviceMemory:
        """Measure this process's tensors in bytes, of the memory that Metal recommends to use."""
        import torch

        own = torch.mps.current_allocated_memory()
        return DeviceMemory(own, torch.mps.recommended_max_memory(), own)

    def free_caches(self, device: Device) -> None:
        """Release PyTorch's cached blocks to Metal."""
        import torch

        torch.mps.empty_cache()
