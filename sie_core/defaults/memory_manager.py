"""Built-in plugin: the memory manager `lru`."""

from __future__ import annotations

from sie_core.contracts.device.memory import MemoryManagerFactory
from sie_core.hookspecs import hookimpl
from sie_core.memory import LeastRecentlyUsed

__all__ = ["INTERFACES", "sie_memory_managers"]

INTERFACES = ("sie.memory/1",)


@hookimpl
def sie_memory_managers() -> dict[str, MemoryManagerFactory]:
    """Register `lru`, which evicts the longest unused model first."""
    return {"lru": LeastRecentlyUsed}
