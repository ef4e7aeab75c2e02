"""The checks of every memory manager, whatever its policy.

A check that fails raises AssertionError with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
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


def a_full_device_is_not_loaded_beyond_what_it_holds(factory: MemoryManagerFactory) -> None:
    """With models that may be unloaded, a load that lacks room makes one of them go, or waits, or is refused."""
    idle = _idle("a", "b", "c", "d", each=240)
    room = factory(LIMITS).make_room(300, DeviceMemory(960, TOTAL), idle, NOW)
    assert room != Room(), f"960 of {TOTAL} bytes are in use by idle models, and a load of 300 goes ahead"


def a_load_that_can_fit_is_not_refused(factory: MemoryManagerFactory) -> None:
    """While unloading models that are not pinned would make room, a load is not told that it cannot fit.

    A model in use is unloaded once it is not; one of unknown size may be tiny.
    """
    used = [replace(model, uses=1, served=False) for model in _idle("a", "b", "c", each=300)]
    for wanted, models in ((300, _idle("a", "b", "c", each=300)), (300, used), (0, _idle("a", "b", "c", each=300))):
        room = factory(LIMITS).make_room(wanted, DeviceMemory(900, TOTAL), models, NOW)
        assert room.fits, f"a load of {wanted} bytes is refused though models of 900 of {TOTAL} bytes may go"


def idle_models_are_unloaded_if_the_operator_says_so(factory: MemoryManagerFactory) -> None:
    """A model unused for longer than `idle_s` is named by `relieve`, with any memory."""
    named = factory(LIMITS).relieve(DeviceMemory(100, TOTAL), _idle("a", each=100), NOW)
    assert list(named) == ["a"], f"a model unused for {_UNUSED_S:.0f} s stays; the operator's limit is {LIMITS.idle_s}"


def without_need_everything_stays(factory: MemoryManagerFactory) -> None:
    """Without pressure, models in recent use stay, and with `idle_s` unset the others too."""
    fresh = [replace(model, last_used=NOW - 1.0) for model in _idle("a", "b", each=100)]
    for limits, models in ((LIMITS, fresh), (replace(LIMITS, idle_s=None), _idle("a", "b", each=100))):
        named = list(factory(limits).relieve(DeviceMemory(200, TOTAL), models, NOW))
        assert not named, f"{named} are unloaded with 200 of {TOTAL} bytes in use, and none is idle for too long"


def a_failed_allocation_costs_a_model(factory: MemoryManagerFactory) -> None:
    """`out_of_memory` names a model whenever an idle one may go, whatever the numbers say."""
    for used in (0, 500, TOTAL):
        named = factory(LIMITS).out_of_memory(DeviceMemory(used, TOTAL), _idle("a", each=100), NOW)
        assert named == "a", f"an allocation failed, an idle model may go, and {named!r} is named"


def one_thing_is_said_at_a_time(factory: MemoryManagerFactory) -> None:
    """`make_room` says to evict, to wait or that nothing fits, never two of them; no model is named twice."""
    for manager, memory, models in _situations(factory):
        room = manager.make_room(300, memory, models, NOW)
        said = [room.evict is not None, room.wait_s is not None, not room.fits]
        assert sum(said) <= 1, f"{room} says more than one thing"
        named = list(manager.relieve(memory, models, NOW))
        assert len(named) == len(set(named)), f"relieve names a model twice: {named}"


def what_it_is_given_is_not_changed(factory: MemoryManagerFactory) -> None:
    """The list of models is the engine's."""
    for manager, memory, models in _situations(factory):
        given = list(models)
        manager.make_room(300, memory, given, NOW)
        manager.relieve(memory, given, NOW)
        manager.out_of_memory(memory, given, NOW)
        assert given == models, "it changes the list of models that it is given"


def models_that_clients_come_back_for_go_last(factory: MemoryManagerFactory) -> None:
    """A model that is kept for clients who were asked to retry is not unloaded in place of another."""
    kept, loose = _idle("kept", "loose", each=480)
    models = [replace(kept, kept_until=NOW + 5.0, last_used=NOW - 500.0), replace(loose, last_used=NOW - 400.0)]
    manager, gone = factory(LIMITS), list[str]()
    while left := [model for model in models if model.id not in gone]:
        room = manager.make_room(300, DeviceMemory(480 * len(left), TOTAL), left, NOW)
        if room.evict not in {model.id for model in left}:
            break
        gone.append(room.evict)
    assert gone != ["kept"], "a model that clients were asked to come back for goes, and an idle one stays"


_UNUSED_S = 1000.0
"""Seconds since the last use of the checks' idle models, far beyond `LIMITS.idle_s`."""


def _idle(*names: str, each: int) -> list[HeldModel]:
    """Make models of `each` bytes, loaded long ago, used once, and not for long."""
    return [
        HeldModel(name, each, NOW - 5000.0, load_s=1.0, last_used=NOW - _UNUSED_S, uses=0, served=True, pinned=False)
        for name in names
    ]


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
    a_full_device_is_not_loaded_beyond_what_it_holds,
    a_load_that_can_fit_is_not_refused,
    idle_models_are_unloaded_if_the_operator_says_so,
    without_need_everything_stays,
    a_failed_allocation_costs_a_model,
    one_thing_is_said_at_a_time,
    what_it_is_given_is_not_changed,
    models_that_clients_come_back_for_go_last,
)
