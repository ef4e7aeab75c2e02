"""Bounds the bytes of payloads that a gateway or sidecar holds, by the memory of its container."""

from __future__ import annotations

from typing import Final

from sie_cluster.settings import ClusterSettings
from sie_core.contracts import Device
from sie_core.plugins import PluginSet

GATEWAY_BYTES: Final = 2 << 30
"""Most bytes of payloads that a gateway holds: bodies and results of some thousand requests."""
SIDECAR_BYTES: Final = 1 << 30
"""Most bytes of payloads that a sidecar holds: what one adapter process computes in a few seconds."""
PART: Final = 2
"""One in so many bytes of a container is for payloads; the rest is for Python, its copies and its heap's gaps."""


def with_memory(settings: ClusterSettings, plugins: PluginSet) -> ClusterSettings:
    """Fill the bounds that are unset by half of the memory that the container, or else the machine, has."""
    probe = next((each for each in plugins.device_probes if each.kind == "cpu"), None)
    here = None if probe is None else probe.memory(Device("cpu")).total // PART
    most = {"gateway_memory_bytes": GATEWAY_BYTES, "sidecar_memory_bytes": SIDECAR_BYTES}
    unset = {name: size for name, size in most.items() if getattr(settings, name) is None}
    return settings.model_copy(update={name: size if here is None else min(size, here) for name, size in unset.items()})


def gateway_bytes(settings: ClusterSettings) -> int:
    """Return the bound of a gateway."""
    return settings.gateway_memory_bytes or GATEWAY_BYTES


def sidecar_bytes(settings: ClusterSettings) -> int:
    """Return the bound of a sidecar."""
    return settings.sidecar_memory_bytes or SIDECAR_BYTES
