"""Devices as the engine sees them, and the probes of plugins that find and measure them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Device:
    """One device that runs batches."""

    kind: str
    """`cpu`, `cuda`, `mps`."""
    index: int = 0
    name: str = ""
    """What it is called, e.g. `NVIDIA L4`."""
    asynchronous: bool = False
    """Whether `run` may return before the device is done, as on CUDA."""

    def __str__(self) -> str:
        return f"{self.kind}:{self.index}" if self.kind == "cuda" else self.kind


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Bytes in use and bytes there are."""

    used: int
    total: int
    own: int | None = None
    """Bytes in use that are this process's; None where the probe cannot tell."""


class DeviceProbe(Protocol):
    """Finds devices of one kind."""

    kind: str
    priority: int
    """`SIE_DEVICE=auto` takes the first device of the probe with the highest priority that finds one."""

    def devices(self) -> list[Device]:
        """List the devices present; an empty list where there are none. May import its library; must not raise."""
        ...

    def memory(self, device: Device) -> DeviceMemory:
        """Measure `device` now, on any thread. What the process can have back at once counts as free."""
        ...

    def free_caches(self, device: Device) -> None:
        """Free memory that is cached for later use; called on any thread, while batches run."""
        ...
