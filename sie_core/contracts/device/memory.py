"""Memory managers decide which models stay on a device: pure, synchronous objects to which the time is passed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Protocol

from sie_core.contracts.device.devices import DeviceMemory


@dataclass(frozen=True, slots=True)
class HeldModel:
    """A loaded model, or a LoRA adapter of one, as a memory manager sees it.

    Times are seconds of the caller's monotonic clock. An adapter is in use whenever its model runs with it, so it is
    never used later than its model. It is evicted alone or with its model.
    """

    id: str
    """The model's id; for a LoRA adapter an id that only the engine uses."""
    memory_bytes: int
    """Measured bytes, for a model without its adapters; unloading is likely to free as many."""
    loaded_at: float
    _: KW_ONLY
    load_s: float
    """Seconds its load took."""
    last_used: float
    """Time of the last use, or of the load."""
    uses: int
    """Leases held now. A model in use is unloaded only once they are released."""
    served: bool
    """Whether it was used since its load; until then, the clients that triggered the load may still come back."""
    pinned: bool
    """Whether the operator pinned it; the engine never evicts a pinned model."""
    kept_until: float = 0.0
    """Time until which it is kept for clients that were asked to retry; 0 if there are none."""


@dataclass(frozen=True, slots=True)
class MemoryLimits:
    """Limits that the operator sets for a memory manager."""

    pressure: float
    """The share of the device, 0 to 1, above which memory is short."""
    idle_s: float | None
    """Unused seconds after which a model is unloaded; None for no limit."""


@dataclass(frozen=True, slots=True)
class Room:
    """Action before a load. Neither `evict` nor `wait_s`: load now."""

    evict: str | None = None
    """The model to unload first. The engine measures again afterwards, and asks again."""
    wait_s: float | None = None
    """Nothing may be unloaded yet: ask again after this many seconds, or when a model becomes idle."""
    fits: bool = True
    """False if no unload would make room enough: the load fails."""


class MemoryManager(Protocol):
    """Chooses the models, and the LoRA adapters of models, to be unloaded.

    Never called from two threads at once. It has neither clock nor thread, and measures nothing. The models passed to
    it are loaded and not being unloaded; those it names are unloaded once unused.
    """

    def make_room(self, wanted: int, memory: DeviceMemory, models: Sequence[HeldModel], now: float) -> Room:
        """Choose what to do before a load of about `wanted` bytes; 0 if the size is unknown.

        Before an adapter's load, its model is not among `models`.
        """
        ...

    def relieve(self, memory: DeviceMemory, models: Sequence[HeldModel], now: float) -> Sequence[str]:
        """Choose what to unload now, with no load waiting: asked every second or so."""
        ...

    def out_of_memory(self, memory: DeviceMemory, models: Sequence[HeldModel], now: float) -> str | None:
        """Choose what to unload after a failed allocation, whatever the numbers say; None if none may be.

        Called with models first; if none of them may be unloaded, with adapters.
        """
        ...


MemoryManagerFactory = Callable[[MemoryLimits], MemoryManager]
"""Makes the memory manager of one device; registered by name, chosen by `SIE_MEMORY_MANAGER`."""
