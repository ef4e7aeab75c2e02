"""The default memory manager: evicts the longest unused model or LoRA adapter first. Pure decisions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sie_core.contracts import DeviceMemory, HeldModel, MemoryLimits, Room
from sie_core.memory.neighbours import is_theirs

ASK_AGAIN_S = 0.05
"""Seconds between two questions to the manager while a load waits: a model that must stay may become unused."""
IDLE_SHARE = 0.25
"""An unused model may be evicted after this share of the time for which a used one must stay."""
GROW_S = 2.0
"""Seconds between two loads while other processes alone push the device above the threshold."""
UNUSED_S = 60.0
"""Seconds a model must be unused to be evicted because of other processes' memory: a model that is soon used again
would be evicted again.
"""


class LeastRecentlyUsed:
    """Evicts the longest unused model first, and never more than needed.

    Models without measured memory are skipped while any other can be evicted. A small model is skipped if a larger,
    more recently used one must be evicted anyway and suffices.

    Before a load, models are evicted until the new one fits below the pressure threshold. If that is impossible, they
    are evicted until it fits on the device. A model in use counts as used now, so it is evicted last, after its
    requests are answered. A used model stays at least as long as its load took: two models that do not fit together
    take turns, and loading takes at most half of the time. A model unused for a quarter of that time may be evicted. A
    model for which clients were given a `Retry-After` is kept until then.

    With no load waiting, only unused models are evicted: idle ones, and under pressure the longest unused. The most
    recently used model stays: pressure that is left then has another cause, and evicting it would only cause a reload.

    If this process alone is below the threshold, other processes cause the pressure and no eviction ends it. Models may
    then fill half of the memory above the threshold, or all of it if other processes hold the first half too. One model
    is loaded every `GROW_S` seconds, and in the background only models unused for `UNUSED_S` are evicted.

    Args:
        limits: The operator's limits.
        longest_stay_s: Upper bound in seconds on the stay of a used model.
    """

    def __init__(self, limits: MemoryLimits, *, longest_stay_s: float = 10.0) -> None:
        self._limits = limits
        self._longest_stay_s = longest_stay_s

    def make_room(self, wanted: int, memory: DeviceMemory, models: Sequence[HeldModel], now: float) -> Room:
        """Choose the longest unused model as long as the load would exceed the pressure threshold."""
        loose = [model for model in models if not model.pinned]
        lacking = memory.used + wanted - self._most(wanted, memory, loose)
        if lacking <= 0:
            return self._slowly(wanted, memory, models, now)
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
        if is_theirs(memory, self._limits.pressure):
            latest = min(latest, now - UNUSED_S)
        free = [model for model in _worth_it(unused) if model not in gone and model.last_used < latest]
        return [model.id for model in (*gone, *_needed(free, excess))]

    def out_of_memory(self, memory: DeviceMemory, models: Sequence[HeldModel], now: float) -> str | None:
        """Choose the longest unused model that is not in use."""
        free = _worth_it([model for model in models if self._may_go(model, now)])
        return next((model.id for model in _longest_unused(free, now)), None)

    def _most(self, wanted: int, memory: DeviceMemory, loose: Sequence[HeldModel]) -> int:
        """Return the bytes of the device that may be in use after a load."""
        threshold = self._threshold(memory)
        if not is_theirs(memory, self._limits.pressure, wanted):
            return threshold
        between = (threshold + memory.total) // 2
        least = memory.used + wanted - sum(model.memory_bytes for model in loose)
        return between if least <= between else memory.total

    def _slowly(self, wanted: int, memory: DeviceMemory, models: Sequence[HeldModel], now: float) -> Room:
        """Let a load go ahead; while other processes hold much, only some time after the last one."""
        newest = max((model.loaded_at for model in models), default=-GROW_S)
        left_s = newest + GROW_S - now
        slow = left_s > 0 and is_theirs(memory, self._limits.pressure, wanted)
        return Room(wait_s=left_s) if slow else Room()

    def _threshold(self, memory: DeviceMemory) -> int:
        return int(memory.total * self._limits.pressure)

    def _may_go(self, model: HeldModel, now: float) -> bool:
        return not model.pinned and not model.uses and self._stayed(model) <= now

    def _stayed(self, model: HeldModel) -> float:
        """Return the time until which a model must stay, if it is not used again."""
        stay_s = min(model.load_s, self._longest_stay_s)
        idle = float("inf") if model.uses else max(model.last_used, model.loaded_at) + IDLE_SHARE * stay_s
        return max(model.kept_until, min(model.loaded_at + stay_s, idle))


def _longest_unused(models: Iterable[HeldModel], now: float) -> list[HeldModel]:
    """Order models by their last use; a model in use counts as used now."""
    return sorted(models, key=lambda model: (now if model.uses else model.last_used, model.loaded_at, model.id))


def _worth_it(models: Sequence[HeldModel]) -> Sequence[HeldModel]:
    """Leave out models that take no measured memory, unless all do."""
    return [model for model in models if model.memory_bytes > 0] or models


def _needed(models: Sequence[HeldModel], lacking: int) -> Sequence[HeldModel]:
    """Take models in order until they free `lacking` bytes, then drop those that are not needed."""
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
