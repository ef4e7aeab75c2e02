"""A close beside work of the residency that is just beginning. Virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from sie_core.contracts import DeviceMemory, HeldModel, ModelLoadError, Room
from sie_core.engine.models.record import RESTING
from sie_core.memory.estimates import Need
from tests.engine.virtual_time import VirtualTimeLoop
from tests.engine.world import MB, World


def run(loop: VirtualTimeLoop, play: Callable[[], Awaitable[None]]) -> None:
    """Play something to its end; nothing on the loop may fail unseen."""
    broken: list[object] = []
    loop.set_exception_handler(lambda _, context: broken.append(context))
    try:
        loop.run_until_complete(asyncio.wait_for(play(), 10_000.0))
    finally:
        loop.close()
    assert broken == []


async def about_to_close(world: World) -> asyncio.Task[None]:
    """Load both models and begin a close, which has had one turn of the loop."""
    await world.residency.start()
    for name in ("a", "b"):
        await world.lifecycle.load(world.catalog.resolve(name))
    closing = asyncio.create_task(world.close())
    await asyncio.sleep(0)
    return closing


def test_an_eviction_that_begins_in_the_tick_of_a_close_changes_no_state_after_it():
    loop = VirtualTimeLoop()
    world = World(loop, {"a": 400 * MB, "b": 400 * MB})

    async def play() -> None:
        closing = await about_to_close(world)
        record = world.registry.known("a")
        evicting = asyncio.create_task(world.unloader.unload(record, 30.0, evict=True))
        await closing
        await evicting
        assert {each.state for each in world.registry} <= RESTING
        assert world.device.held() == 0

    run(loop, play)


@pytest.mark.timeout(60)  # it went round and round without a pause, which only a signal ends
def test_a_model_that_is_removed_in_the_tick_of_a_close_holds_up_no_close():
    loop = VirtualTimeLoop()
    world = World(loop, {"a": 400 * MB, "b": 400 * MB})

    async def play() -> None:
        closing = await about_to_close(world)
        retiring = asyncio.create_task(world.lifecycle.retire(world.registry.retire("a")))
        await closing
        await retiring
        assert {each.state for each in world.registry} <= RESTING
        assert world.device.held() == 0

    run(loop, play)


class Hesitant:
    """A memory manager that never makes up its mind, and names no time to ask again."""

    def __init__(self) -> None:
        self.asked = 0

    def make_room(self, wanted: int, memory: DeviceMemory, models: Sequence[HeldModel], now: float) -> Room:
        self.asked += 1
        return Room(wait_s=0.0)

    def relieve(self, memory: DeviceMemory, models: Sequence[HeldModel], now: float) -> Sequence[str]:
        return ()

    def out_of_memory(self, memory: DeviceMemory, models: Sequence[HeldModel], now: float) -> str | None:
        return None


def test_a_manager_that_has_a_load_wait_no_time_is_asked_now_and_again_and_not_without_pause():
    loop, manager = VirtualTimeLoop(), Hesitant()
    world = World(loop, {"a": 400 * MB}, manager=manager)
    told: list[ModelLoadError] = []

    async def load() -> None:
        raise AssertionError("there was no room")

    async def play() -> None:
        await world.residency.start()
        try:
            await world.residency.place("a", lambda: Need(400 * MB, True), load, 1.0)
        except ModelLoadError as error:
            told.append(error)
        await world.close()

    run(loop, play)
    assert [error.failure for error in told] == ["OOM"]
    assert 60 < manager.asked <= 60 / 0.02 + 3
