"""The default memory manager: the longest unused model, or LoRA adapter, goes first.

Pure; it unloads and measures nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sie_core.contracts import DeviceMemory, HeldModel, MemoryLimits, Room

UNSERVED_S = 10.0
"""How long a model stays that nobody asked for since it was loaded: clients that were told to retry come back later
than its load ends."""
LONGEST_STAY_S = 10.0
"""How long a load may have taken at most to count in full for how long its model stays at least."""
ASK_AGAIN_S = 0.25
"""How often a load that waits for models in use is decided anew, should none be let go before."""


class LeastRecentlyUsed:
    """Unloads the longest unused model first, and none without need, nor for nothing.

    A model whose unload gives nothing back is passed over while any other may go; so is a small one where a larger one,
    used later, has to go anyway and is enough.

    Before a load, models go until its model fits below the pressure threshold, or, where that can never be, into the
    device at all. A model in use counts as used now, so it goes last, and only once its requests are answered. A model
    stays at least as long as its load took: two that do not fit together share the device in turns, of which loading
    never takes more than half.

    With no load waiting, only unused models go: idle ones, and under pressure the longest unused, but never the last
    one used, since then the pressure comes from elsewhere and the model would only be loaded again.
    """

    def __init__(self, limits: MemoryLimits) -> None:
        self._limits = limits

    def make_room(self, wanted: int, memory: DeviceMemory, models: Sequence[HeldModel], now: float) -> Room:
        """Choose the longest unused model while the load would put the device under pressure."""
        loose = [model for model in models if not model.pinned]
        lacking = memory.used + wanted - self._threshold(memory)
        if lacking <= 0:
            return Room()
        if memory.used + wanted - sum(model.memory_bytes for model in loose) > memory.total:
            return Room(fits=False)
        if not loose:
            return Room()
        worth = _worth_it(loose)
        free = [model for model in worth if _stayed(model) <= now]
        if free:
            return Room(evict=_needed(_longest_unused(free, now), lacking)[0].id)
        return Room(wait_s=min(ASK_AGAIN_S, *(_stayed(model) - now for model in worth)))

    def relieve(self, memory: DeviceMemory, models: Sequence[HeldModel], now: float) -> Sequence[str]:
        """Choose idle models, and under pressure the longest unused ones."""
        unused = [model for model in _longest_unused(models, now) if _may_go(model, now)]
        idle_s = self._limits.idle_s
        gone = [model for model in unused if idle_s is not None and now - model.last_used >= idle_s]
        excess = memory.used - self._threshold(memory) - sum(model.memory_bytes for model in gone)
        latest = max((model.last_used for model in models), default=now)
        free = [model for model in _worth_it(unused) if model not in gone and model.last_used < latest]
        return [model.id for model in (*gone, *_needed(free, excess))]

    def out_of_memory(self, memory: DeviceMemory, models: Sequence[HeldModel], now: float) -> str | None:
        """Choose the longest unused model that nobody uses."""
        free = _worth_it([model for model in models if _may_go(model, now)])
        return next((model.id for model in _longest_unused(free, now)), None)

    def _threshold(self, memory: DeviceMemory) -> int:
        return int(memory.total * self._limits.pressure)


def _longest_unused(models: Iterable[HeldModel], now: float) -> list[HeldModel]:
    """Order models by their last use; those in use come last, as used now."""
    return sorted(models, key=lambda model: (now if model.uses else model.last_used, model.loaded_at, model.id))


def _worth_it(models: Sequence[HeldModel]) -> Sequence[HeldModel]:
    """Leave out those that give nothing back, unless none does."""
    return [model for model in models if model.memory_bytes > 0] or models


def _needed(models: Sequence[HeldModel], lacking: int) -> Sequence[HeldModel]:
    """Take models from the first on until they give back `lacking` bytes; then spare those that it does not need."""
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


def _may_go(model: HeldModel, now: float) -> bool:
    return not model.pinned and not model.uses and _stayed(model) <= now


def _stayed(model: HeldModel) -> float:
    """Return when a model has stayed as long as it must."""
    if not model.served:
        return model.loaded_at + UNSERVED_S
    return model.loaded_at + min(model.load_s, LONGEST_STAY_S)
