"""Megabytes are moved at a bounded rate while small answers come, and at once while none do. In virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from sie_core.concurrency.pacing import (
    BYTES_S,
    GIVES_WAY_S,
    LATE_S,
    LOOK_S,
    MOST_CORES,
    PIECE_BYTES,
    SMALL_BYTES,
    Pacing,
)
from tests.engine.virtual_time import VirtualTimeLoop

PIECES = 400


def passed(test: Callable[[Pacing], Coroutine[Any, Any, None]]) -> float:
    """How long it takes, in virtual seconds."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        loop = runner.get_loop()
        runner.run(test(Pacing(loop.time)))
        return loop.time()


async def answer(pacing: Pacing, size: int, pause_s: float = GIVES_WAY_S / 2) -> None:
    while True:
        pacing.answered(size)
        await asyncio.sleep(pause_s)


async def move(pacing: Pacing, pieces: int, movers: int = 1) -> None:
    async def some() -> None:
        for _ in range(pieces // movers):
            await pacing.turn(PIECE_BYTES)

    await asyncio.gather(*(some() for _ in range(movers)))


@pytest.mark.parametrize("movers", [1, 8])
@pytest.mark.parametrize("cores", [1, 2, 64])
def test_beside_small_answers_all_that_is_large_has_the_rate_of_the_cores_together(cores: int, movers: int) -> None:
    async def beside(pacing: Pacing) -> None:
        pacing.set_cores(cores)
        answers = asyncio.create_task(answer(pacing, SMALL_BYTES - 1))
        await asyncio.sleep(0)
        await move(pacing, PIECES, movers)
        answers.cancel()

    seconds = PIECES * PIECE_BYTES / BYTES_S / min(cores, MOST_CORES)
    assert passed(beside) == pytest.approx(seconds, abs=0.01)


@pytest.mark.parametrize("size", [None, SMALL_BYTES], ids=["no answers", "answers that are not small"])
def test_nothing_waits_beside(size: int | None) -> None:
    async def beside(pacing: Pacing) -> None:
        answers = None if size is None else asyncio.create_task(answer(pacing, size))
        await asyncio.sleep(0)
        await move(pacing, PIECES)
        if answers is not None:
            answers.cancel()

    assert passed(beside) == 0


def test_a_turn_that_is_seconds_away_comes_once_no_small_answers_do() -> None:
    async def left_alone(pacing: Pacing) -> None:
        pacing.answered(1)
        await asyncio.gather(*(pacing.turn(1 << 30) for _ in range(8)))
        await pacing.turn(1 << 30)

    assert GIVES_WAY_S <= passed(left_alone) <= GIVES_WAY_S + LOOK_S


def test_turns_that_are_given_up_are_waited_for_by_nobody() -> None:
    async def given_up(pacing: Pacing) -> None:
        answers = asyncio.create_task(answer(pacing, 1))
        await asyncio.sleep(0)
        turns = [asyncio.create_task(pacing.turn(1 << 25)) for _ in range(50)]
        await asyncio.sleep(0)
        for turn in turns[1:]:
            turn.cancel()
        await asyncio.wait(turns)
        await pacing.turn(1)
        answers.cancel()

    assert passed(given_up) == pytest.approx((1 << 25) / BYTES_S, abs=0.01)


def test_turns_that_came_at_once_as_small_answers_stopped_are_not_waited_for_once_those_come_again() -> None:
    async def again(pacing: Pacing) -> None:
        pacing.answered(1)
        await asyncio.gather(*(pacing.turn(1 << 30) for _ in range(8)))
        pacing.answered(1)
        assert pacing.take(1) == 0

    passed(again)


def test_turns_that_come_late_make_up_for_little_and_never_for_a_pause() -> None:
    async def late(pacing: Pacing) -> None:
        pacing.answered(1)
        pacing.take(PIECE_BYTES)
        await asyncio.sleep(GIVES_WAY_S / 2)
        at_once = 0
        while pacing.take(PIECE_BYTES) == 0:
            at_once += 1
        assert at_once == pytest.approx(LATE_S * BYTES_S / PIECE_BYTES, abs=1)

    passed(late)
