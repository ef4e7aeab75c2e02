"""Memory of other processes: unloading models does not free it."""

from __future__ import annotations

from sie_core.contracts import DeviceMemory


def is_theirs(memory: DeviceMemory, pressure: float, wanted: int = 0) -> bool:
    """Whether other processes are the reason that the device's use plus `wanted` bytes exceeds the threshold.

    False if the probe cannot tell this process's share.
    """
    threshold = pressure * memory.total
    return memory.own is not None and memory.own + wanted <= threshold < memory.used + wanted


def crowding(memory: DeviceMemory | None, pressure: float) -> str | None:
    """Describe for `/health` that other processes leave little memory; None if they do not."""
    if memory is None or memory.own is None or not is_theirs(memory, pressure):
        return None
    theirs, total = (size / 2**20 for size in (memory.used - memory.own, memory.total))
    return (
        f"other processes hold {theirs:,.0f} of {total:,.0f} MiB of the device's memory: models are loaded with "
        "pauses in between, and those unused for a minute are unloaded"
    )
