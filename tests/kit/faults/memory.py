"""Memory managers, each broken in one way."""

from __future__ import annotations

from dataclasses import replace

from sie_core.contracts import Room
from sie_core.memory import LeastRecentlyUsed
from tests.kit.faults.seeding import fault


@fault("memory manager", "an_empty_device_takes_any_model_that_fits")
class Stubborn(LeastRecentlyUsed):
    def make_room(self, wanted, memory, models, now):
        return Room(wait_s=1.0)


@fault("memory manager", "a_wait_is_bounded")
class Endless(LeastRecentlyUsed):
    def make_room(self, wanted, memory, models, now):
        return Room(wait_s=1e9) if models else Room()


@fault("memory manager", "it_names_only_models_it_was_given_and_none_that_is_pinned")
class Unpinning(LeastRecentlyUsed):
    def out_of_memory(self, memory, models, now):
        return next((model.id for model in models if model.pinned), None)


@fault("memory manager", "it_names_only_models_it_was_given_and_none_that_is_pinned")
class NamesTheUnloaded(LeastRecentlyUsed):
    last = None

    def make_room(self, wanted, memory, models, now):
        room = Room(evict=self.last) if self.last else super().make_room(wanted, memory, models, now)
        self.last = room.evict
        return room

    def relieve(self, memory, models, now):
        return ["m0"]


@fault("memory manager", "making_room_comes_to_an_end")
class WaitsForEver(LeastRecentlyUsed):
    def make_room(self, wanted, memory, models, now):
        return Room(wait_s=1.0) if models else Room()


@fault("memory manager", "a_full_device_is_not_loaded_beyond_what_it_holds")
class LoadsAnyway(LeastRecentlyUsed):
    def make_room(self, wanted, memory, models, now):
        return Room()


@fault("memory manager", "a_load_that_can_fit_is_not_refused")
class RefusesEarly(LeastRecentlyUsed):
    def make_room(self, wanted, memory, models, now):
        return Room(fits=False) if memory.used + wanted > memory.total else Room()


@fault("memory manager", "a_load_that_can_fit_is_not_refused")
class CountsIdleModelsAlone(LeastRecentlyUsed):
    def make_room(self, wanted, memory, models, now):
        idle = sum(model.memory_bytes for model in models if not model.uses and model.served)
        if memory.used + wanted - idle > memory.total:
            return Room(fits=False)
        return super().make_room(wanted, memory, models, now)


@fault("memory manager", "idle_models_are_unloaded_if_the_operator_says_so")
class IgnoresIdleness(LeastRecentlyUsed):
    def relieve(self, memory, models, now):
        return []


@fault("memory manager", "without_need_everything_stays")
class UnloadsTheUsed(LeastRecentlyUsed):
    def relieve(self, memory, models, now):
        return [model.id for model in models if not model.pinned and not model.uses]


@fault("memory manager", "a_failed_allocation_costs_a_model")
class GivesUp(LeastRecentlyUsed):
    def out_of_memory(self, memory, models, now):
        return None


@fault("memory manager", "one_thing_is_said_at_a_time")
class SaysBoth(LeastRecentlyUsed):
    def make_room(self, wanted, memory, models, now):
        room = super().make_room(wanted, memory, models, now)
        return replace(room, wait_s=1.0) if room.evict else room


@fault("memory manager", "one_thing_is_said_at_a_time")
class SaysItTwice(LeastRecentlyUsed):
    def relieve(self, memory, models, now):
        return [*super().relieve(memory, models, now)] * 2


@fault("memory manager", "what_it_is_given_is_not_changed")
class SortsTheModels(LeastRecentlyUsed):
    def make_room(self, wanted, memory, models, now):
        models.sort(key=lambda model: -model.last_used)
        return super().make_room(wanted, memory, models, now)


@fault("memory manager", "a_load_that_can_fit_is_not_refused")
class TakesUnknownSizeForAll(LeastRecentlyUsed):
    def make_room(self, wanted, memory, models, now):
        return super().make_room(wanted or 2 * memory.total, memory, models, now)


@fault("memory manager", "models_that_clients_come_back_for_go_last")
class IgnoresPromises(LeastRecentlyUsed):
    def make_room(self, wanted, memory, models, now):
        return super().make_room(wanted, memory, [replace(model, kept_until=0.0) for model in models], now)


@fault("memory manager", None)
class EvictsTheNewest(LeastRecentlyUsed):
    """Evicts the model used last: a policy, if a poor one."""

    def out_of_memory(self, memory, models, now):
        free = [model for model in models if not model.pinned and not model.uses]
        return max(free, key=lambda model: model.last_used).id if free else super().out_of_memory(memory, models, now)
