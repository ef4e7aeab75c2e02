"""What a backend tells of its device and its queues, for those that watch a server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from sie_core.contracts.device import Device, DeviceMemory


@dataclass(frozen=True, slots=True)
class DeviceStatus:
    """One device now."""

    device: Device
    memory: DeviceMemory
    threshold: float
    """The share of its memory, 0 to 1, above which models are unloaded."""
    queued: Mapping[str, int] = field(default_factory=dict)
    """Units that wait for the device, by model; those of which none waits may be left out."""


@runtime_checkable
class WatchableBackend(Protocol):
    """An `InferenceBackend` that has a device of its own."""

    def device_status(self) -> DeviceStatus:
        """Measure now. Called on the event loop, five times a second while somebody watches."""
        ...
