"""The checks of every memory manager, whatever its policy.

A check that fails raises AssertionError with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

from sie_core.contracts import DeviceMemory, HeldModel, MemoryLimits, MemoryManager, Room
from sie_core.contracts.device.memory import MemoryManagerFactory

LIMITS = MemoryLimits(pressure=0.8, idle_s=60.0)
NOW = 10_000.0
"""The time of the checks, in seconds of their clock."""
TOTAL = 1000
"""Bytes of the device of the checks."""
LONGEST_WAIT_S = 60.0
"""Seconds that a memory manager may tell a load to wait."""


def an_empty_device_takes_any_model_that_fits(factory: MemoryManagerFactory) -> None:
    """With nothing loaded and room enough, the load goes ahead."""
    for wanted in (0, 1, TOTAL // 2):
        room = factory(LIMITS).make_room(wanted, DeviceMemory(0, TOTAL), [], NOW)
        assert room == Room(), f"an empty device of {TOTAL} bytes gives {room} for a load of {wanted}"


def it_names_only_models_it_was_given_and_none_that_is_pinned(factory: MemoryManagerFactory) -> None:
    """Holds for any memory and any use of the models."""
    for manager, memory, models in _situations(factory):
        loose = {model.id for model in models if not model.pinned}
        room = manager.make_room(300, memory, models, NOW)
        named = {room.evict, manager.out_of_memory(memory, models, NOW), *manager.relieve(memory, models, NOW)} - {None}
        assert named <= loose, f"it names {sorted(map(str, named - loose))}, and may name {sorted(loose)}"


def a_wait_is_bounded(factory: MemoryManagerFactory) -> None:
    """A load that has to wait is told for how long, at most a minute."""
    for manager, memory, models in _situations(factory):
        wait_s = manager.make_room(300, memory, models, NOW).wait_s
        assert wait_s is None or 0 < wait_s <= LONGEST_WAIT_S, f"a load is told to wait {wait_s} s"


def making_room_comes_to_an_end(factory: MemoryManagerFactory) -> None:
    """Unloading the named models, one after the other, ends with a load or a refusal."""
    for manager, memory, models in _situations(factory):
        used, left, now = memory.used, list(models), NOW
        for _ in range(1000):
            room = manager.make_room(300, DeviceMemory(used, memory.total), left, now)
            if room.evict is None and room.wait_s is None:
                break
            now += room.wait_s or 0.0
            used -= sum(model.memory_bytes for model in left if model.id == room.evict)
            left = [model for model in left if model.id != room.evict]
        else:
            raise AssertionError("it was asked a thousand times, and the load still waits")


def _situations(factory: MemoryManagerFactory) -> Sequence[tuple[MemoryManager, DeviceMemory, list[HeldModel]]]:
    """Make devices from empty to full, with models that are idle, in use, fresh, never used, and pinned."""
    kinds = product((0, 1), (True, False), (True, False), (NOW - 0.5, NOW - 5000.0))
    models = [
        HeldModel(
            f"m{number}",
            50,
            loaded_at,
            load_s=1.0,
            last_used=max(loaded_at, NOW - 100.0 * number),
            uses=uses,
            served=served,
            pinned=pinned,
        )
        for number, (uses, served, pinned, loaded_at) in enumerate(kinds)
    ]
    groups: tuple[list[HeldModel], ...] = ([], models[:3], models[3:9], models)
    return [(factory(LIMITS), DeviceMemory(used, TOTAL), group) for used in (0, 700, 999) for group in groups]


MEMORY_CHECKS: Sequence[Callable[[MemoryManagerFactory], None]] = (
    an_empty_device_takes_any_model_that_fits,
    it_names_only_models_it_was_given_and_none_that_is_pinned,
    a_wait_is_bounded,
    making_room_comes_to_an_end,
)
