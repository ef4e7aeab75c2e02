"""The default memory manager: evicts the longest unused model or LoRA adapter first. Pure decisions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sie_core.contracts import DeviceMemory, HeldModel, MemoryLimits, Room

ASK_AGAIN_S = 0.25
"""How long a waiting load pauses before the manager is asked again."""


class LeastRecentlyUsed:
    """Evicts the longest unused model first, and never more than needed.

    A model that takes no measured memory is skipped while any other may go. So is a small one where a larger one, used
    later, has to go anyway and is enough.

    Before a load, models are evicted until the new one fits below the pressure threshold, or, where that is impossible,
    into the device at all. A model in use counts as used now, so it is evicted last, after its requests are answered. A
    model stays at least as long as its load took: two models that do not fit together take turns, and loading takes at
    most half of the time.

    With no load waiting, only unused models are evicted: idle ones, and under pressure the longest unused. The one used
    last stays, because the pressure then comes from elsewhere and the model would only be loaded again.

    Args:
        limits: The operator's.
        unserved_s: How long a model stays that no request has used yet: clients that were told to retry come back after
            its load.
        longest_stay_s: The longest time for which a model stays because its load took long.
    """

    def __init__(self, limits: MemoryLimits, *, unserved_s: float = 10.0, longest_stay_s: float = 10.0) -> None:
        self._limits = limits
        self._unserved_s = unserved_s
        self._longest_stay_s = longest_stay_s

    def make_room(self, wanted: int, memory: DeviceMemory, models: Sequence[HeldModel], now: float) -> Room:
        """Choose the longest unused model as long as the load would exceed the pressure threshold."""
        loose = [model for model in models if not model.pinned]
        lacking = memory.used + wanted - self._threshold(memory)
        if lacking <= 0:
            return Room()
        if memory.used + wanted - sum(model.memory_bytes for model in loose) > memory.total:
            return Room(fits=False)
        if not loose:
            return Room()
        worth = _worth_it(loose)
        free = [model for model in worth if self._stayed(model) <= now]
        if free:
            return Room(evict=_needed(_longest_unused(free, now), lacking)[0].id)
        return Room(wait_s=min(ASK_AGAIN_S, *(self._stayed(model) - now for model in worth)))

    def relieve(self, memory: DeviceMemory, models: Sequence[HeldModel], now: float) -> Sequence[str]:
        """Choose idle models, and under pressure the longest unused ones."""
        unused = [model for model in _longest_unused(models, now) if self._may_go(model, now)]
        idle_s = self._limits.idle_s
        gone = [model for model in unused if idle_s is not None and now - model.last_used >= idle_s]
        excess = memory.used - self._threshold(memory) - sum(model.memory_bytes for model in gone)
        latest = max((model.last_used for model in models), default=now)
        free = [model for model in _worth_it(unused) if model not in gone and model.last_used < latest]
        return [model.id for model in (*gone, *_needed(free, excess))]

    def out_of_memory(self, memory: DeviceMemory, models: Sequence[HeldModel], now: float) -> str | None:
        """Choose the longest unused model that is not in use."""
        free = _worth_it([model for model in models if self._may_go(model, now)])
        return next((model.id for model in _longest_unused(free, now)), None)

    def _threshold(self, memory: DeviceMemory) -> int:
        return int(memory.total * self._limits.pressure)

    def _may_go(self, model: HeldModel, now: float) -> bool:
        return not model.pinned and not model.uses and self._stayed(model) <= now

    def _stayed(self, model: HeldModel) -> float:
        """Return when a model has stayed as long as it must."""
        if not model.served:
            return model.loaded_at + self._unserved_s
        return model.loaded_at + min(model.load_s, self._longest_stay_s)


def _longest_unused(models: Iterable[HeldModel], now: float) -> list[HeldModel]:
    """Order models by their last use; a model in use counts as used now."""
    return sorted(models, key=lambda model: (now if model.uses else model.last_used, model.loaded_at, model.id))


def _worth_it(models: Sequence[HeldModel]) -> Sequence[HeldModel]:
    """Leave out models that take no measured memory, unless all do."""
    return [model for model in models if model.memory_bytes > 0] or models


def _needed(models: Sequence[HeldModel], lacking: int) -> Sequence[HeldModel]:
    """Take models in order until they free `lacking` bytes, then drop those that are not needed for it."""
    taken: list[HeldModel] = []
    for model in models:
        if lacking <= 0:
            break
        taken.append(model)
        lacking -= model.memory_bytes
    for model in tuple(taken):
        if lacking + model.memory_bytes <= 0:
            taken.remove(model)
            lacking += model.memory_bytes
    return taken
