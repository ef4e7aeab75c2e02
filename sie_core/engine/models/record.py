"""What the engine knows of each model of the catalog: its state, its last load. Plain data, event loop only."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Container, Iterator
from dataclasses import dataclass, field

from sie_core.contracts import HeldModel, ModelState, ResolvedModel
from sie_core.engine.models.download_progress import Fetching
from sie_core.engine.models.load_failure import FailedLoad
from sie_core.engine.models.loaded import LoadedModel

OVERDUE_SHARE = 0.25
"""How much longer a load that exceeds its estimate is thought to take, as a share of what it took so far."""
LEAST_RETRY_S = 1.0

clock = time.monotonic


@dataclass(slots=True, eq=False)
class ModelSlot:
    """What the engine knows of one model. Times are seconds of the monotonic clock."""

    resolved: ResolvedModel
    pinned: bool = False
    state: ModelState = "available"
    loaded: LoadedModel | None = None
    failure: FailedLoad | None = None
    change: asyncio.Task[None] | None = None
    """The load or unload under way; it never raises."""
    load_started: float = 0.0
    fetching: Fetching | None = None
    """The fetch of its weights under way."""
    load_s: float | None = None
    """Seconds the last load took that succeeded."""
    stages_s: dict[str, float] = field(default_factory=dict)
    """Seconds of each finished stage of the last load."""
    loaded_at: float = 0.0
    memory_bytes: int | None = None
    """What the last load that succeeded was measured to take."""
    last_used: float | None = None
    """When the model was last asked for, before its present load."""
    evicted: bool = False
    """Whether the unload under way is the memory manager's: the model may be loaded again right after it."""
    wanted_again: bool = False
    """Whether it will be."""
    retired: bool = False
    """Whether no request is given it any more: its model has another slot, or none."""

    def awaits_device(self) -> bool:
        """Whether the load under way has put nothing onto the device yet: it fetches or waits for room."""
        return self.state == "loading" and "room" not in self.stages_s

    def remaining_s(self, now: float, estimate: float) -> float:
        """Estimate how long the load under way will take yet."""
        elapsed = now - self.load_started
        expected = estimate if self.load_s is None else self.load_s
        return max(LEAST_RETRY_S, max(expected, elapsed * (1 + OVERDUE_SHARE)) - elapsed)

    def used_at(self) -> float | None:
        """Say when the model was last asked for; None where it never was."""
        use = self.loaded.use if self.loaded is not None else None
        return use.last_used if use is not None and use.entered else self.last_used

    def memory_held(self) -> int | None:
        """Return what the model takes with its LoRA adapters; unloaded, what it took alone."""
        if self.memory_bytes is None or self.loaded is None:
            return self.memory_bytes
        return self.memory_bytes + self.loaded.loras.memory_bytes

    def held(self) -> HeldModel | None:
        """Describe the model to a memory manager; None where it is not loaded, or on its way out."""
        if self.state != "loaded" or self.loaded is None:
            return None
        return HeldModel(
            id=self.resolved.id,
            memory_bytes=self.memory_bytes or 0,
            loaded_at=self.loaded_at,
            load_s=self.stages_s.get("load", 0.0),
            last_used=self.loaded.use.last_used,
            uses=self.loaded.use.count,
            served=self.loaded.use.entered,
            pinned=self.pinned,
        )


class Slots:
    """The slots of every model that was ever asked for, with those that are on their way in or out beside them.

    Args:
        pinned: Ids of the models that stay loaded.
    """

    def __init__(self, pinned: Container[str] = ()) -> None:
        self._pinned = pinned
        self._slots: dict[str, ModelSlot] = {}
        self._beside: list[ModelSlot] = []

    def __iter__(self) -> Iterator[ModelSlot]:
        """Go through every slot that may hold something, whether requests are given it or not."""
        return iter([*self._slots.values(), *self._beside])

    def of(self, resolved: ResolvedModel) -> ModelSlot:
        """Return a model's slot."""
        found = self._slots.get(resolved.id)
        if found is None:
            found = self._slots[resolved.id] = ModelSlot(resolved, pinned=resolved.id in self._pinned)
        return found

    def beside(self, resolved: ResolvedModel) -> ModelSlot:
        """Make a slot that no request is given yet."""
        slot = ModelSlot(resolved, pinned=resolved.id in self._pinned)
        self._beside.append(slot)
        return slot

    def known(self, model: str) -> ModelSlot | None:
        """Return the slot of the model with an id, or None where it was never asked for."""
        return self._slots.get(model)

    def take(self, model: str) -> ModelSlot | None:
        """Give no request the slot of the model with an id any more; return it."""
        slot = self._slots.pop(model, None)
        if slot is not None:
            slot.retired = True
            self._beside.append(slot)
        return slot

    def put(self, slot: ModelSlot) -> None:
        """Give requests a slot that was beside; its model has no other."""
        self._beside.remove(slot)
        self._slots[slot.resolved.id] = slot

    def forget(self, slot: ModelSlot) -> None:
        """Forget a slot that was beside and holds nothing any more."""
        self._beside.remove(slot)

    def held_models(self) -> list[HeldModel]:
        """Describe every loaded model to a memory manager."""
        return [held for slot in self._slots.values() if (held := slot.held()) is not None]

    def leaving(self, *, unused: bool) -> list[asyncio.Task[None]]:
        """List the unloads under way; `unused` leaves out those that wait for requests to be answered."""
        return [
            slot.change
            for slot in self
            if slot.state == "unloading" and slot.change and not (unused and slot.loaded and slot.loaded.use.count)
        ]

    def held_loras(self) -> list[HeldModel]:
        """Describe the LoRA adapters of every loaded model to a memory manager."""
        slots = self._slots.values()
        loaded = [slot.loaded for slot in slots if slot.state == "loaded" and slot.loaded is not None]
        return [held for model in loaded for held in model.loras.held()]
