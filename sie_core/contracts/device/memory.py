"""Memory managers decide which models stay on a device: pure, synchronous objects that are given the time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from sie_core.contracts.device.devices import DeviceMemory


@dataclass(frozen=True, slots=True)
class HeldModel:
    """A loaded model, or a LoRA adapter of one, as a memory manager sees it.

    Times are seconds of the caller's monotonic clock. An adapter is used whenever its model is with it, so it is never
    used later than that; it goes with its model, or alone.
    """

    id: str
    """The model's id; for a LoRA adapter one that only the engine uses."""
    memory_bytes: int
    """What it was measured to take, a model without its adapters; what unloading it is likely to give back."""
    loaded_at: float
    load_s: float
    """Seconds its load took."""
    last_used: float
    """When it was last used, or loaded."""
    uses: int
    """Leases held now. A model in use is unloaded only once they are released."""
    served: bool
    """Whether it was used since it was loaded; until then, the clients that had it loaded may still come back."""
    pinned: bool
    """Whether the operator pinned it; the engine never evicts a pinned model."""
    kept_until: float = 0.0
    """Until when clients were told to come back for it; 0 where none is awaited."""


@dataclass(frozen=True, slots=True)
class MemoryLimits:
    """What the operator asks of a memory manager."""

    pressure: float
    """The share of the device, 0 to 1, above which memory is short."""
    idle_s: float | None
    """Unused seconds after which a model is unloaded; None for no limit."""


@dataclass(frozen=True, slots=True)
class Room:
    """What to do before a load. Neither `evict` nor `wait_s`: load now."""

    evict: str | None = None
    """The model to unload first. The engine measures again afterwards, and asks again."""
    wait_s: float | None = None
    """Nothing may be unloaded yet: ask again after so many seconds, or as soon as a model is used no more."""
    fits: bool = True
    """False where no unload would make room enough: the load fails."""


class MemoryManager(Protocol):
    """Chooses the models, and the LoRA adapters of models, to be unloaded.

    Never called from two threads at once. It has no clock and no thread of its own, and measures nothing. The models it
    is given are loaded ones that are on no way out; those it names are unloaded once nobody uses them.
    """

    def make_room(self, wanted: int, memory: DeviceMemory, models: Sequence[HeldModel], now: float) -> Room:
        """Choose what to do before a load that will take about `wanted` bytes; 0 where nobody can tell.

        Before an adapter's load, its model is not among `models`.
        """
        ...

    def relieve(self, memory: DeviceMemory, models: Sequence[HeldModel], now: float) -> Sequence[str]:
        """Choose what to unload now, with no load waiting: asked every second or so."""
        ...

    def out_of_memory(self, memory: DeviceMemory, models: Sequence[HeldModel], now: float) -> str | None:
        """Choose what to unload because an allocation failed, whatever the numbers say; None for none.

        Asked with models, and where none of them may go, with adapters.
        """
        ...


MemoryManagerFactory = Callable[[MemoryLimits], MemoryManager]
"""Makes the memory manager of one device; registered by name, chosen by `SIE_MEMORY_MANAGER`."""
