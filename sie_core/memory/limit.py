"""Applies the operator's memory limit to a measurement. Pure."""

from __future__ import annotations

from sie_core.contracts import DeviceMemory


def within_limit(memory: DeviceMemory, limit: int | None) -> DeviceMemory:
    """Return the view with less memory free: the whole device, or this process within `limit` bytes.

    Where the probe cannot tell this process's share, the use of the whole device counts against the limit.
    """
    if limit is None:
        return memory
    own = memory.used if memory.own is None else memory.own
    return min(memory, DeviceMemory(own, limit, own), key=lambda view: view.total - view.used)
