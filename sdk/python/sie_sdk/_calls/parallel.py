"""Running the requests of one call of many items side by side: on threads, or as tasks of an event loop.

The caller's items are drawn where the call was made, not on the threads: a database's cursor may be bound to it.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import aclosing, closing
from typing import Any, Final, TypeVar

from sie_sdk._calls.batches import Batch, Batches
from sie_sdk._calls.exchange import Operation

Piece = TypeVar("Piece")
Outcome = TypeVar("Outcome")
Pause = Callable[[float], None]
Run = Callable[[Operation[None], Pause], None]
RunTask = Callable[[Operation[None]], Coroutine[Any, Any, None]]

_DRAWN: Final = 2
"""Requests drawn for each that may be in flight: behind one that takes long, as many others go on."""


def pieces_on_threads(batches: Batches[Piece, Any], run: Run) -> Generator[Piece, None, None]:
    """Yield the pieces of each batch as it is done, in their order."""
    with closing(_on_threads(batches, run)) as done:
        for batch in done:
            yield from batches.pieces(batch)


def outcome_on_threads(batches: Batches[Any, Outcome], run: Run) -> Outcome:
    """Return the outcome of all batches."""
    return batches.outcome(list(_on_threads(batches, run)))


async def pieces_of_tasks(batches: Batches[Piece, Any], run: RunTask) -> AsyncGenerator[Piece, None]:
    """Yield the pieces of each batch as it is done, in their order."""
    async with aclosing(_as_tasks(batches, run)) as done:
        async for batch in done:
            for piece in batches.pieces(batch):
                yield piece


async def outcome_of_tasks(batches: Batches[Any, Outcome], run: RunTask) -> Outcome:
    """Return the outcome of all batches."""
    return batches.outcome([batch async for batch in _as_tasks(batches, run)])


def _on_threads(batches: Batches[Any, Any], run: Run) -> Generator[Batch[Any], None, None]:
    """Run each operation by `run`, whose waits end where the call does: by an exception, or a loop that is left."""
    ended = threading.Event()

    def pause(seconds: float) -> None:
        if ended.wait(seconds):
            raise InterruptedError("the call this request is of has ended")

    with batches, ThreadPoolExecutor(batches.parallel, "sie") as threads:
        drawn: deque[tuple[Batch[Any], Future[None]]] = deque()
        try:
            for batch, operation in batches:
                drawn.append((batch, threads.submit(run, operation, pause)))
                if len(drawn) == _DRAWN * batches.parallel:
                    yield _done(drawn)
            while drawn:
                yield _done(drawn)
        finally:
            ended.set()
            for _, each in drawn:
                each.cancel()


def _done(drawn: deque[tuple[Batch[Any], Future[None]]]) -> Batch[Any]:
    """Wait for the first of them, and raise what none of them should: what they fail with is told by item."""
    batch, future = drawn.popleft()
    future.result()
    return batch


async def _as_tasks(batches: Batches[Any, Any], run: RunTask) -> AsyncGenerator[Batch[Any], None]:
    """Run each operation by `run`; what still runs where the call ends early is cancelled and awaited."""
    places = asyncio.Semaphore(batches.parallel)

    async def placed(operation: Operation[None]) -> None:
        async with places:
            await run(operation)

    with batches:
        drawn: deque[tuple[Batch[Any], asyncio.Task[None]]] = deque()
        try:
            for batch, operation in batches:
                drawn.append((batch, asyncio.create_task(placed(operation))))
                if len(drawn) == _DRAWN * batches.parallel:
                    await drawn[0][1]
                    yield drawn.popleft()[0]
            while drawn:
                await drawn[0][1]
                yield drawn.popleft()[0]
        finally:
            for _, each in drawn:
                each.cancel()
            await asyncio.gather(*(each for _, each in drawn), return_exceptions=True)
