"""The kit's checks of memory managers: ours passes, and each check catches the mistake it is for."""

import pytest

from sie_core.contracts import Room
from sie_core.memory import LeastRecentlyUsed
from sie_core.testing.memory_checks import MEMORY_CHECKS


class Stubborn(LeastRecentlyUsed):
    def make_room(self, wanted, memory, models, now):
        return Room(wait_s=1.0)


class Endless(LeastRecentlyUsed):
    def make_room(self, wanted, memory, models, now):
        return Room(wait_s=1e9) if models else Room()


class Unpinning(LeastRecentlyUsed):
    def out_of_memory(self, memory, models, now):
        return next((model.id for model in models if model.pinned), None)


@pytest.mark.parametrize("check", MEMORY_CHECKS, ids=lambda check: check.__name__)
def test_the_built_in_manager_passes(check):
    check(LeastRecentlyUsed)


@pytest.mark.parametrize(
    ("number", "manager", "told"),
    [
        (0, Stubborn, "an empty device"),
        (1, Unpinning, "it names"),
        (2, Endless, "told to wait"),
        (3, Stubborn, "still waits"),
    ],
)
def test_a_mistake_is_caught(number, manager, told):
    with pytest.raises(AssertionError, match=told):
        MEMORY_CHECKS[number](manager)
