"""Running the requests of one call of many items side by side: on threads, or as tasks of an event loop.

The caller's items are drawn where the call was made, not on the threads: a database's cursor may be bound to it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

from sie_sdk._calls.batches import Batches
from sie_sdk._calls.exchange import Operation

Outcome = TypeVar("Outcome")
Pause = Callable[[float], None]


def on_threads(batches: Batches[Outcome], run: Callable[[Operation[None], Pause], None]) -> Outcome:
    """Run each operation by `run`, whose waits end where the call does: by an exception of the caller's items."""
    ended = threading.Event()

    def pause(seconds: float) -> None:
        if ended.wait(seconds):
            raise InterruptedError("the call this request is of has ended")

    with batches, ThreadPoolExecutor(batches.parallel, "sie") as threads:
        running: set[Future[None]] = set()
        try:
            for operation in batches:
                running.add(threads.submit(run, operation, pause))
                if len(running) == batches.parallel:
                    done, running = wait(running, return_when=FIRST_COMPLETED)
                    _raise_of(done)
            _raise_of(running)
        finally:
            ended.set()
    return batches.outcome()


async def as_tasks(batches: Batches[Outcome], run: Callable[[Operation[None]], Coroutine[Any, Any, None]]) -> Outcome:
    """Run each operation by `run`; what still runs where the call ends early is cancelled."""
    running: set[asyncio.Task[None]] = set()
    with batches:
        try:
            for operation in batches:
                running.add(asyncio.create_task(run(operation)))
                if len(running) == batches.parallel:
                    done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                    await asyncio.gather(*done)
            await asyncio.gather(*running)
        finally:
            for each in running:
                each.cancel()
    return batches.outcome()


def _raise_of(ended: Iterable[Future[None]]) -> None:
    """Wait for requests, and raise what none of them should: what they fail with is told by item."""
    for each in ended:
        each.result()
