"""The default memory manager: who goes, who stays, and for how long."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sie_core.contracts import DeviceMemory, HeldModel, MemoryLimits, Room
from sie_core.memory import LeastRecentlyUsed
from sie_core.memory.lru import ASK_AGAIN_S, GROW_S, UNUSED_S

NOW = 1000.0
LRU = LeastRecentlyUsed(MemoryLimits(pressure=0.8, idle_s=None))
IDLE = LeastRecentlyUsed(MemoryLimits(pressure=0.8, idle_s=60.0))


def held(name: str, unused_s: float, **facts: object) -> HeldModel:
    """A model of 100 bytes that was loaded long ago."""
    usual = {"memory_bytes": 100, "loaded_at": 0.0, "load_s": 1.0, "uses": 0, "served": True, "pinned": False}
    return HeldModel(id=name, last_used=NOW - unused_s, **{**usual, **facts})  # type: ignore[arg-type]


def of(used: int, total: int = 1000) -> DeviceMemory:
    return DeviceMemory(used, total)


def test_nothing_goes_while_a_load_stays_below_the_threshold():
    assert LRU.make_room(200, of(600), [held("a", 5)], NOW) == Room()


def test_the_longest_unused_model_goes_first():
    models = [held("a", 5), held("b", 50), held("c", 20)]
    assert LRU.make_room(201, of(600), models, NOW) == Room(evict="b")


def test_a_model_whose_unload_gives_nothing_back_goes_only_where_no_other_may():
    empty, idle = held("empty", 500, memory_bytes=0), held("idle", 5)
    busy, fresh = held("busy", 5, uses=1), held("fresh", 0, loaded_at=NOW - 1, load_s=1.03125)
    assert LRU.make_room(201, of(600), [empty, idle], NOW) == Room(evict="idle")
    assert LRU.make_room(201, of(600), [empty, busy], NOW) == Room(evict="busy")
    assert LRU.make_room(201, of(600), [empty, fresh], NOW) == Room(wait_s=0.03125)
    assert LRU.make_room(201, of(600), [empty], NOW) == Room(evict="empty")
    assert LRU.out_of_memory(of(0), [empty, idle], NOW) == "idle"
    assert LRU.out_of_memory(of(0), [empty, busy], NOW) == "empty"
    assert LRU.relieve(of(900), [empty, idle, held("last", 1)], NOW) == ["idle"]
    assert IDLE.relieve(of(0), [empty], NOW) == ["empty"]


def test_none_goes_whose_memory_is_not_needed_as_a_larger_one_goes_anyway():
    small, large, last = held("small", 50, memory_bytes=5), held("large", 20, memory_bytes=400), held("last", 5)
    assert LRU.make_room(300, of(600), [small, large, last], NOW) == Room(evict="large")
    assert LRU.make_room(205, of(600), [small, large, last], NOW) == Room(evict="small")
    assert LRU.relieve(of(900), [small, large, last], NOW) == ["large"]
    assert LRU.relieve(of(1000), [small, held("other", 30), large, last], NOW) == ["large"]


def test_a_model_in_use_goes_after_every_unused_one_whatever_its_last_request():
    models = [held("busy", 50, uses=2), held("idle", 5)]
    assert LRU.make_room(300, of(600), models, NOW) == Room(evict="idle")
    assert LRU.make_room(300, of(600), models[:1], NOW) == Room(evict="busy")


def test_a_pinned_model_never_goes():
    assert LRU.make_room(300, of(600), [held("a", 50, pinned=True), held("b", 5)], NOW) == Room(evict="b")
    assert LRU.make_room(300, of(600), [held("a", 50, pinned=True)], NOW) == Room()
    assert LRU.make_room(500, of(600), [held("a", 50, pinned=True)], NOW) == Room(fits=False)


def test_a_model_that_cannot_fit_even_alone_unloads_nobody():
    assert LRU.make_room(601, of(600), [held("a", 5), held("b", 9)], NOW) == Room(fits=False)
    assert LRU.make_room(600, of(600), [held("a", 5), held("b", 9)], NOW) == Room(evict="b")


def test_a_model_stays_at_least_as_long_as_its_load_took():
    fresh = held("fresh", 0, loaded_at=NOW - 1, load_s=1.03125)
    assert LRU.make_room(300, of(600), [fresh], NOW) == Room(wait_s=0.03125)
    assert LRU.make_room(300, of(600), [fresh], NOW + 0.03125) == Room(evict="fresh")
    assert LRU.make_room(300, of(600), [fresh, held("old", 3)], NOW) == Room(evict="old")


def test_a_model_that_clients_were_told_to_come_back_for_is_kept_until_then():
    awaited = held("awaited", 0, loaded_at=NOW, served=False, kept_until=NOW + 3)
    assert LRU.make_room(300, of(600), [awaited], NOW) == Room(wait_s=ASK_AGAIN_S)
    assert LRU.make_room(300, of(600), [awaited], NOW + 3) == Room(evict="awaited")


def test_a_model_that_nobody_uses_goes_after_a_quarter_of_the_time_that_one_in_use_stays():
    fresh = held("fresh", 0, loaded_at=NOW, load_s=4.0)
    assert LRU.make_room(300, of(600), [fresh], NOW + 0.97) == Room(wait_s=pytest.approx(0.03))
    assert LRU.make_room(300, of(600), [fresh], NOW + 1) == Room(evict="fresh")
    busy = replace(fresh, uses=1)
    assert LRU.make_room(300, of(600), [busy], NOW + 3.9) == Room(wait_s=ASK_AGAIN_S)
    assert LRU.make_room(300, of(600), [busy], NOW + 4) == Room(evict="fresh")


def test_two_models_that_do_not_fit_together_spend_at_most_half_the_time_on_loads():
    now, loaded, loads = 0.0, "a", 0
    models = {"a": held("a", 0, loaded_at=0.0, load_s=2.0, uses=1), "b": held("b", 0, load_s=2.0, uses=1)}
    while now < 100.0:
        room = LRU.make_room(500, of(600), [models[loaded]], now)
        if room.wait_s is not None:
            now += room.wait_s
            continue
        assert room.evict == loaded
        now += 2.0
        loaded = "b" if loaded == "a" else "a"
        models[loaded] = held(loaded, 0, loaded_at=now, load_s=2.0, uses=1)
        loads += 1
    assert 20 <= loads <= 25


def test_without_pressure_or_an_idle_limit_everybody_stays():
    assert not LRU.relieve(of(800), [held("a", 9e9)], NOW)


def test_under_pressure_the_longest_unused_go_until_it_is_over_but_never_the_last_used():
    models = [held("a", 5), held("b", 50), held("c", 20)]
    assert LRU.relieve(of(900), models, NOW) == ["b"]
    assert LRU.relieve(of(901), models, NOW) == ["b", "c"]
    assert LRU.relieve(of(1000), models, NOW) == ["b", "c"]


@pytest.mark.parametrize("facts", [{"uses": 1}, {"pinned": True}, {"loaded_at": NOW - 1, "load_s": 8.0}])
def test_a_model_in_use_pinned_or_fresh_does_not_go_in_the_background(facts):
    models = [held("a", 500, **facts), held("b", 5)]
    assert not IDLE.relieve(of(1000), models, NOW)
    assert LRU.out_of_memory(of(0), models, NOW) == "b"
    assert LRU.out_of_memory(of(0), models[:1], NOW) is None


def test_idle_models_go_without_pressure_the_last_used_too():
    assert IDLE.relieve(of(0), [held("a", 60), held("b", 59.9)], NOW) == ["a"]
    assert IDLE.relieve(of(0), [held("a", 61), held("b", 61)], NOW) == ["a", "b"]


def test_what_idle_models_give_back_counts_against_the_pressure():
    models = [held("idle", 70), held("a", 50), held("b", 5)]
    assert IDLE.relieve(of(900), models, NOW) == ["idle"]
    assert IDLE.relieve(of(950), models, NOW) == ["idle", "a"]


def test_after_a_failed_allocation_the_longest_unused_goes_whatever_the_numbers_say():
    assert LRU.out_of_memory(of(0), [held("a", 5), held("b", 6)], NOW) == "b"


def beside(others: int, own: int) -> DeviceMemory:
    return DeviceMemory(others + own, 1000, own)


def test_beside_others_that_hold_much_a_load_takes_what_is_free_instead_of_another_model():
    models = [held("a", 5), held("b", 50)]
    assert LRU.make_room(100, of(800), models, NOW) == Room(evict="b")
    assert LRU.make_room(100, beside(600, 200), models, NOW) == Room()
    assert LRU.make_room(101, beside(600, 200), models, NOW) == Room(evict="b")
    assert LRU.make_room(100, beside(100, 701), [*models, held("c", 5)], NOW) == Room(evict="b"), "its own doing"
    assert LRU.make_room(50, beside(750, 200), models, NOW) == Room(evict="b"), "without it half of the rest stays free"


def test_where_no_eviction_brings_back_what_others_hold_none_is_made():
    models = [held("a", 5, memory_bytes=10), held("b", 50, memory_bytes=10)]
    assert LRU.make_room(10, beside(950, 20), models, NOW) == Room()
    assert LRU.make_room(31, beside(950, 20), models, NOW) == Room(evict="b")
    assert LRU.make_room(51, beside(950, 20), models, NOW) == Room(fits=False)


def test_beside_others_that_hold_much_models_are_loaded_one_after_a_while():
    fresh = held("fresh", 0, loaded_at=NOW - 0.5)
    assert LRU.make_room(50, beside(700, 100), [fresh], NOW) == Room(wait_s=GROW_S - 0.5)
    assert LRU.make_room(50, beside(700, 100), [fresh], NOW + GROW_S) == Room()
    assert LRU.make_room(50, beside(600, 100), [fresh], NOW) == Room()
    assert LRU.make_room(50, beside(850, 0), [], NOW) == Room()


def test_what_others_hold_unloads_only_models_unused_for_long_and_one_stays():
    models = [held("a", 5), held("b", UNUSED_S - 1), held("c", UNUSED_S + 1), held("d", UNUSED_S + 2)]
    assert LRU.relieve(of(1000), models, NOW) == ["d", "c"]
    assert LRU.relieve(of(1000), models[:2], NOW) == ["b"]
    assert LRU.relieve(beside(500, 400), models, NOW) == ["d"]
    assert LRU.relieve(beside(600, 400), models[:2], NOW) == []
    assert LRU.relieve(beside(900, 99), models, NOW + 999) == ["d", "c"]
    assert LRU.relieve(beside(900, 99), models[:1], NOW + 999) == []
