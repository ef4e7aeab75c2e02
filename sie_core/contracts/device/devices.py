"""Devices as the engine sees them, and the probes of plugins that find and measure them."""

from __future__ import annotations

import re
from dataclasses import KW_ONLY, dataclass
from typing import Protocol

_PASSED_OVER = re.compile(r"nvidia|tesla|geforce|amd|instinct|sxm\d*|pcie|nvl|hbm\d*e?|oam")
_MEMORY = re.compile(r"\d+gb")
_SIZES = (["a100"],)
"""Models that exist in two memory sizes, so the size is part of the name."""


@dataclass(frozen=True, slots=True)
class Device:
    """One device that runs batches."""

    kind: str
    """`cpu`, `cuda`, `mps`."""
    index: int = 0
    name: str = ""
    """Product name, e.g. `NVIDIA L4`."""
    _: KW_ONLY
    asynchronous: bool = False
    """Whether `run` may return before the device is done, as on CUDA."""

    @property
    def gpu_type(self) -> str | None:
        """Name of the machine type for autoscalers and clients, such as `l4` or `a100-80gb`; None for a CPU."""
        if self.kind == "cpu":
            return None
        words = [
            word for word in re.split(r"[^a-z0-9]+", self.name.lower()) if word and not _PASSED_OVER.fullmatch(word)
        ]
        sized = words[:1] in _SIZES
        kept = [word for word in words if sized or not _MEMORY.fullmatch(word)]
        return "-".join(kept) or self.kind

    def __str__(self) -> str:
        return f"{self.kind}:{self.index}" if self.kind == "cuda" else self.kind


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Bytes in use and bytes in total."""

    used: int
    total: int
    own: int | None = None
    """Bytes in use by this process; None if the probe cannot tell."""


class DeviceProbe(Protocol):
    """Finds devices of one kind."""

    kind: str
    priority: int
    """`SIE_DEVICE=auto` takes the first device of the probe with the highest priority that finds one."""

    def devices(self) -> list[Device]:
        """List the present devices, possibly none. May import its library; must not raise."""
        ...

    def memory(self, device: Device) -> DeviceMemory:
        """Measure `device` now, on any thread. Memory that the process can reclaim at once counts as free."""
        ...

    def free_caches(self, device: Device) -> None:
        """Free memory that is cached for later use; called on any thread, while batches run."""
        ...
