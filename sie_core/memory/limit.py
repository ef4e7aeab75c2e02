"""How much of a device counts, where the operator sets a limit of their own. Pure."""

from __future__ import annotations

from sie_core.contracts import DeviceMemory


def within_limit(memory: DeviceMemory, limit: int | None) -> DeviceMemory:
    """Return the tighter of two views: the whole device, and what this process uses of `limit` bytes.

    Where the probe cannot tell this process's share, the use of the whole device counts against the limit.
    """
    if limit is None:
        return memory
    own = memory.used if memory.own is None else memory.own
    return min(memory, DeviceMemory(own, limit, own), key=lambda view: view.total - view.used)
