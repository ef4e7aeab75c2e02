"""Which loads a request waits for, when a client is told to come back, and what it finds then. Virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from random import Random
from typing import Any

import pytest

from sie_core.contracts import InferenceError, LoadWait
from sie_core.engine.timeouts import DEFAULT_TIMEOUTS
from sie_core.memory.residents import Loads
from tests.engine.virtual_time import VirtualTimeLoop
from tests.engine.world import MB, World

SOON = LoadWait(2.0, if_soon=True)
LOAD_S = 1.0
"""What a load takes in a world."""


def played(play: Callable[[World], Awaitable[None]], *names: str) -> None:
    """Play something with models of which two fit, each of which was loaded once and took a second."""
    loop = VirtualTimeLoop()
    world = World(loop, dict.fromkeys(names, 400 * MB))

    async def whole() -> None:
        await world.residency.start()
        for name in names:
            await world.lifecycle.load(world.catalog.resolve(name))
            await world.lifecycle.unload(world.catalog.resolve(name))
        await play(world)
        await world.close()

    try:
        loop.run_until_complete(asyncio.wait_for(whole(), 10_000.0))
    finally:
        loop.close()


async def use(world: World, name: str, wait: LoadWait = SOON, for_s: float = 0.0) -> float:
    """Use a model for a while; return after how many seconds it was there."""
    asked = world.loop.time()
    _, lease = await world.lifecycle.acquire(world.catalog.resolve(name), wait)
    waited = world.loop.time() - asked
    with lease:
        await asyncio.sleep(for_s)
    return waited


async def told(world: World, name: str, wait: LoadWait = SOON) -> float:
    """Ask for a model that will not be there soon; return when the client is to come back, in seconds."""
    asked = world.loop.time()
    with pytest.raises(InferenceError) as caught:
        await use(world, name, wait)
    assert caught.value.code == "MODEL_LOADING"
    assert world.loop.time() == asked, "it waited"
    return float(caught.value.retry_after_s or 0.0)


def test_a_load_that_is_predicted_to_end_soon_is_waited_for():
    async def play(world: World) -> None:
        assert await use(world, "a") == pytest.approx(LOAD_S)

    played(play, "a")


def test_a_load_behind_others_is_waited_for_as_long_as_all_of_them_end_soon():
    async def play(world: World) -> None:
        waits = await asyncio.gather(use(world, "a"), use(world, "b"))
        assert sorted(waits) == pytest.approx([LOAD_S, 2 * LOAD_S])

    played(play, "a", "b")


def test_who_is_told_to_come_back_finds_the_model_then():
    async def play(world: World) -> None:
        others = [asyncio.create_task(use(world, name, for_s=0.5)) for name in ("a", "b")]
        await asyncio.sleep(0.1)
        pause = await told(world, "c")
        assert pause > 2.0
        await asyncio.sleep(0.1)
        rival = asyncio.create_task(use(world, "d", LoadWait(600.0)))  # next, somebody wants its place
        await asyncio.sleep(pause - 0.1)
        assert await use(world, "c") == 0.0
        await asyncio.gather(rival, *others)

    played(play, "a", "b", "c", "d")


def test_the_time_that_clients_are_told_is_when_the_model_is_there():
    async def play(world: World) -> None:
        waiting = [asyncio.create_task(use(world, name, LoadWait(60.0))) for name in ("a", "b")]
        await asyncio.sleep(0.2)
        pause = await told(world, "c")
        assert await use(world, "c", LoadWait(60.0)) == pytest.approx(pause, abs=0.1)
        await asyncio.gather(*waiting)

    played(play, "a", "b", "c")


def test_a_client_that_was_told_to_come_back_and_does_not_holds_the_place_for_a_bounded_time():
    async def play(world: World) -> None:
        await asyncio.gather(use(world, "a"), use(world, "b"))
        record = world.registry.of(world.catalog.resolve("c"))
        for _ in range(3):
            record.expect_back(3600.0)
        assert await use(world, "c", LoadWait(600.0)) < 5.0
        bound = DEFAULT_TIMEOUTS.longest_return_s
        assert await use(world, "d", LoadWait(600.0)) < 5.0  # a or b goes
        waits = [await use(world, name, LoadWait(600.0)) for name in ("a", "b", "a")]
        assert max(waits) < bound + 5.0

    played(play, "a", "b", "c", "d")


def test_memory_that_is_only_kept_for_later_is_given_back_before_a_load_is_refused():
    async def play(world: World) -> None:
        await use(world, "a")
        world.device.kept = 990 * MB
        await use(world, "b", LoadWait(60.0))

    played(play, "a", "b")


def test_a_request_without_a_place_to_wait_in_is_told_to_come_back():
    entered: list[bool] = []

    @contextmanager
    def place() -> Iterator[bool]:
        entered.append(True)
        yield False

    async def play(world: World) -> None:
        full: Callable[[], AbstractContextManager[bool]] = place
        assert await told(world, "a", LoadWait(30.0, place=full)) == pytest.approx(LOAD_S)
        assert await use(world, "a", LoadWait(30.0)) == pytest.approx(LOAD_S)
        assert await use(world, "a", LoadWait(30.0, place=full)) == 0.0
        assert entered == [True]

    played(play, "a")


def first_loads(play: Callable[[World], Awaitable[None]], **load_s: float) -> None:
    """Play something with models that nobody loaded before; `load_s` names them, and what their loads take."""
    loop = VirtualTimeLoop()
    world = World(loop, dict.fromkeys(load_s, MB))
    load = world.load

    def timed(fetched: Any, report: Any) -> Any:
        world.load_s = lambda: load_s[fetched.resolved.id]  # type: ignore[method-assign]
        return load(fetched, report)

    world.load = timed  # type: ignore[method-assign]

    async def whole() -> None:
        await world.residency.start()
        await play(world)
        await world.close()

    try:
        loop.run_until_complete(asyncio.wait_for(whole(), 10_000.0))
    finally:
        loop.close()


def test_a_first_load_without_any_other_to_guess_by_is_not_waited_for():
    async def play(world: World) -> None:
        assert await told(world, "a") == 1.0

    first_loads(play, a=0.2)


def test_a_model_that_was_loaded_by_imports_is_told_by_its_own_load_and_others_by_theirs():
    """The imports are no part of its next load; nor do they tell of others."""

    async def play(world: World) -> None:
        load = world.load

        def importing(fetched: Any, report: Any) -> Any:
            world.loop.sleep(3.0)
            report("import", 3.0)
            return load(fetched, report)

        world.load = importing  # type: ignore[method-assign]
        await world.lifecycle.load(world.catalog.resolve("a"))
        world.load = load  # type: ignore[method-assign]
        assert await told(world, "b") == 1.0
        for name in ("b", "c", "d"):
            await world.lifecycle.load(world.catalog.resolve(name))
        await world.lifecycle.unload(world.catalog.resolve("a"))
        assert await told(world, "a", LoadWait(0.1, if_soon=True)) == pytest.approx(0.2)

    first_loads(play, a=0.2, b=9.0, c=9.0, d=9.0)


def test_a_first_load_is_waited_for_where_other_models_loaded_at_once():
    async def play(world: World) -> None:
        await world.lifecycle.load(world.catalog.resolve("a"))
        assert await use(world, "b") == pytest.approx(0.2)

    first_loads(play, a=0.2, b=0.2)


def test_a_first_load_is_not_waited_for_where_other_models_took_a_second():
    async def play(world: World) -> None:
        await world.lifecycle.load(world.catalog.resolve("a"))
        assert await told(world, "b") == pytest.approx(LOAD_S)

    first_loads(play, a=LOAD_S, b=LOAD_S)


def test_a_first_load_that_takes_longer_than_was_guessed_is_waited_for_no_longer():
    async def play(world: World) -> None:
        await world.lifecycle.load(world.catalog.resolve("quick"))
        asked = world.loop.time()
        with pytest.raises(InferenceError, match="is being loaded"):
            await use(world, "slow")
        assert world.loop.time() - asked == pytest.approx(1.25 * 0.2)
        await asyncio.sleep(0.2)
        assert await told(world, "slow") >= 0.1

    first_loads(play, quick=0.2, slow=5.0)


def test_clients_of_eight_models_of_which_one_fits_wait_for_loads_and_for_little_else():
    loop = VirtualTimeLoop()
    names = [f"m{number}" for number in range(8)]
    world = World(loop, dict.fromkeys(names, 600 * MB))
    draw, loads = Random(0), 0
    asked = draw.choices(names, [(rank + 1) ** -1.1 for rank in range(8)], k=100)
    load = world.load

    def counted(fetched: Any, report: Any) -> Any:
        nonlocal loads
        loads += 1
        return load(fetched, report)

    world.load = counted  # type: ignore[method-assign]

    async def client() -> None:
        while asked:
            name = asked.pop()
            while True:
                try:
                    await use(world, name, for_s=0.01)
                    break
                except InferenceError as error:
                    await asyncio.sleep(error.retry_after_s or 0.0)

    async def whole() -> float:
        await world.residency.start()
        started = loop.time()
        await asyncio.gather(*(client() for _ in range(4)))
        took = loop.time() - started
        await world.close()
        return took

    try:
        took = loop.run_until_complete(asyncio.wait_for(whole(), 10_000.0))
    finally:
        loop.close()
    assert took <= 1.85 * loads * LOAD_S


def test_a_model_that_was_kept_for_clients_does_not_make_the_next_wait_longer():
    now = 0.0
    loads = Loads(lambda: now)
    for _ in range(20):
        with loads.queued("a", 0.5) as mine:
            loads.found_room(mine, 5.0)
    assert loads.turn_s("b") == pytest.approx(0.5, abs=0.01)
