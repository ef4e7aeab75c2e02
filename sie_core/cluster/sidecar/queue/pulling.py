"""Which models' work is pulled: those that gateways ask for, and those of which work waits."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine
from contextlib import suppress
from typing import Any

from sie_core.cluster.broker import ensure_queue
from sie_core.cluster.sidecar.queue.credit import credit_of_pull
from sie_core.cluster.subjects import MOST_SUBJECT, needed_subject, work_consumer, work_queue, work_subject
from sie_core.contracts import Delivery, Message, Pull, QueueError, QueueTransport
from sie_core.settings import Settings

LOOK_S = 5.0
"""Between two looks at what waits: a broadcast that was missed costs no more than that."""
MOST_MODELS = 1000
"""Whose work is pulled at a time; those asked for last."""

log = logging.getLogger(__name__)


class Pulls:
    """A pull for each model that is asked for, while work is taken.

    Args:
        transport: Open.
        settings: Pool, bundle and what a consumer is set to.
        on_delivery: Takes each delivery and the pull it came by.
    """

    def __init__(
        self, transport: QueueTransport, settings: Settings, on_delivery: Callable[[Delivery, Pull], None]
    ) -> None:
        self._transport, self._settings, self._on_delivery = transport, settings, on_delivery
        self._queue = work_queue(settings.pool)
        self._prefix = work_subject("", settings.pool, settings.bundle).rpartition(".")[0].rpartition(".")[0] + "."
        self._credit = credit_of_pull(settings)
        self._wanted: dict[str, None] = {}
        self._pulls: dict[str, Pull] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._taking = False
        self._look_now = asyncio.Event()

    async def open(self) -> None:
        """Listen for what is asked for, once the queue is there: a worker's user may not make it."""
        await ensure_queue(self._transport, self._queue)
        await self._transport.subscribe(needed_subject(self._settings.pool), self._needed)

    async def look(self) -> None:
        """Look again and again for work that waits, until cancelled."""
        while True:
            if self._taking:
                with suppress(QueueError):
                    waiting = await self._transport.backlog(self._queue.name, self._prefix + ">")
                    for work in waiting:
                        self._want(work, waiting)
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._look_now.wait()
            self._look_now.clear()

    def take(self) -> None:
        """Pull."""
        self._taking = True
        self._look_now.set()
        for work in self._wanted:
            self._run(self._pull(work))

    def stop(self) -> None:
        """Pull no more; what is on its way goes back."""
        self._taking = False
        pulls, self._pulls = self._pulls, {}
        for pull in pulls.values():
            self._run(pull.close())

    async def settled(self) -> None:
        """Wait until pulls that were stopped have ended."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _needed(self, message: Message) -> None:
        self._want(message.payload.decode("utf-8", "replace"))

    def _want(self, work: str, others: Collection[str] = ()) -> None:
        """Pull a model's work too, unless that took the place of one of `others`."""
        if not work.startswith(self._prefix) or len(work) > MOST_SUBJECT or set(work) & set("*> "):
            return
        self._wanted.pop(work, None)
        self._wanted[work] = None
        if len(self._wanted) > MOST_MODELS:
            self._want_no_more(next((each for each in self._wanted if each not in others), work))
        if self._is_missing(work):
            self._run(self._pull(work))

    def _want_no_more(self, work: str) -> None:
        """Pull a model's work no more: it was not asked for for longest. It is again once work waits."""
        del self._wanted[work]
        if (pull := self._pulls.pop(work, None)) is not None:
            self._run(pull.close())

    async def _pull(self, work: str) -> None:
        settings = self._settings
        consumer = work_consumer(settings.pool, work, settings.ack_wait_s, settings.max_deliver)
        try:
            await self._transport.declare_consumer(consumer)
            if not self._is_missing(work):
                return
            pull = await self._transport.pull(
                consumer.queue, consumer.name, lambda delivery: self._on_delivery(delivery, pull), credit=self._credit
            )
        except QueueError as error:
            log.warning("the work of %s cannot be pulled, it is tried again: %s", work, error)
            return
        if not self._is_missing(work):
            await pull.close()
            return
        self._pulls[work] = pull

    def _is_missing(self, work: str) -> bool:
        return self._taking and work in self._wanted and work not in self._pulls

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
