"""Which keys' work is pulled: of those that gateways ask for, the ones placed here."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress

from sie_cluster.fleet.placement.keys import key_of, token
from sie_cluster.queue.broker import ensure_queue
from sie_cluster.queue.subjects import (
    HEALTH_WANTED,
    KEY_IDLE_S,
    MOST_SUBJECT,
    needed_subject,
    waiting_subject,
    work_consumer,
    work_queue,
)
from sie_cluster.settings import ClusterSettings
from sie_cluster.sidecar.queue.credit import FIRST, Credit
from sie_cluster.sidecar.queue.placing import Came, Placing
from sie_core.concurrency.tasks import Tasks
from sie_core.contracts import Delivery, Message, Pull, QueueError, QueueTransport

LOOK_S = 2.0
"""Between two looks at what came, and at workers that fell silent."""
STILL_S = 8.0
"""For how long work is taken to wait that a gateway said so of; it says so every five seconds."""
MOST_KEYS = 1000
"""That are placed; those asked for last."""
DECIDING_SHARE = 0.2
"""Of the time at most, where there are many keys and much is heard."""

log = logging.getLogger(__name__)


class Pulls:
    """A pull for each key that is placed here, while work is taken.

    Args:
        transport: Open.
        settings: Pool, bundle and what a consumer is set to.
        on_delivery: Takes each delivery and the pull it came by.
        placing: Says which keys are pulled.
        credit: Gives pulls more than the first.
        on_change: Called when other keys are pulled, or other keys are behind.
    """

    def __init__(
        self,
        transport: QueueTransport,
        settings: ClusterSettings,
        on_delivery: Callable[[Delivery, Pull], None],
        placing: Placing,
        credit: Credit,
        on_change: Callable[[], None],
    ) -> None:
        self._transport, self._settings, self._on_delivery = transport, settings, on_delivery
        self._placing, self._credit, self._on_change = placing, credit, on_change
        self._queue = work_queue(settings.pool)
        self._place_of_all = token(settings.pool), token(settings.bundle)
        self._wanted: dict[str, float] = {}
        """When each key was last asked for, the one asked for longest ago first."""
        self._still: dict[str, float] = {}
        """When each key was last said to wait, lately."""
        self._pulls: dict[str, Pull] = {}
        self._opening: set[str] = set()
        self._came: dict[str, Came] = {}
        """What came of each key that is pulled, and since when that is counted."""
        self._tasks = Tasks()
        self._taking = False
        self._placing_soon: asyncio.TimerHandle | None = None
        self._may_place_at = 0.0
        self.pulled = frozenset[str]()
        """The subjects whose work is pulled."""

    async def open(self) -> None:
        """Listen for what is asked for, once the queue is there: a worker's user may not make it."""
        await ensure_queue(self._transport, self._queue)
        await self._transport.subscribe(needed_subject(self._settings.pool), self._needed)
        await self._transport.subscribe(waiting_subject(self._settings.pool), self._waits)

    async def look(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            if self._transport.state != "connected":
                self._placing.away()
            elif self._taking:
                with suppress(QueueError):
                    await self._look()

    def take(self) -> None:
        """Pull."""
        self._taking = True
        self.place_soon()

    def stop(self) -> None:
        """Pull no more; what is on its way goes back."""
        self._taking = False
        self.pulled = frozenset()
        for work in list(self._pulls):
            self._close(work)

    def moved(self) -> None:
        """Pull the work of another resource pool, and that of the former no more."""
        if self._placing_soon is not None:
            self._placing_soon.cancel()
        self._place()

    async def settled(self) -> None:
        """Wait until pulls that were stopped have ended."""
        await self._tasks.ended()

    def place_soon(self) -> None:
        """Decide anew what is pulled: something else was heard."""
        if self._placing_soon is None and self._taking:
            loop = asyncio.get_running_loop()
            self._placing_soon = loop.call_later(max(0.0, self._may_place_at - loop.time()), self._place)

    def _place(self) -> None:
        self._placing_soon = None
        if not self._taking:
            return
        began = asyncio.get_running_loop().time()
        before, self.pulled = self.pulled, self._placing.decide(tuple(self._wanted), self._still.keys())
        now = asyncio.get_running_loop().time()
        self._may_place_at = now + (now - began) / DECIDING_SHARE
        for work in self._pulls.keys() - self.pulled:
            self._close(work)
        for work in self.pulled:
            if self._is_missing(work) and work not in self._opening:
                self._tasks.start(self._pull(work))
        if before != self.pulled:
            self._on_change()

    async def _look(self) -> None:
        """Take what came of each key; ask those for heartbeats whose are overdue. It asks the broker nothing."""
        now, behind = time.monotonic(), self._placing.behind
        for work in [work for work, at in self._wanted.items() if now - at > KEY_IDLE_S]:
            del self._wanted[work]
        self._still = {work: at for work, at in self._still.items() if now - at < STILL_S}
        self._placing.look({work: self._came_of(work, pull, now) for work, pull in self._pulls.items()})
        self.place_soon()
        if behind != self._placing.behind:
            self._on_change()
        for worker in self._placing.overdue():
            await self._transport.send(HEALTH_WANTED, worker.encode())

    def _came_of(self, work: str, pull: Pull, now: float) -> Came | None:
        """Say what came of a key since it was last told; None where nothing could come, as credit is used up."""
        came = self._came[work]
        if not (came.delivered or pull.credit):
            return None
        self._came[work] = Came(0, 0, now)
        return came

    def _needed(self, message: Message) -> None:
        """Have a key placed too, in place of the one that was asked for longest ago where they are too many."""
        work = message.payload.decode("utf-8", "replace")
        key = None if len(work) > MOST_SUBJECT or set(work) & set("*> ") else key_of(work)
        if key is None or (key.place[0], key.place[2]) != self._place_of_all:
            return
        is_new = self._wanted.pop(work, None) is None
        self._wanted[work] = time.monotonic()
        if len(self._wanted) > MOST_KEYS:
            del self._wanted[next(iter(self._wanted))]
        if is_new:
            self.place_soon()

    def _waits(self, message: Message) -> None:
        """Have a key placed whose work waits: who pulls it may be gone."""
        self._needed(message)
        if (work := message.payload.decode("utf-8", "replace")) in self._wanted:
            self._still[work] = time.monotonic()

    async def _pull(self, work: str) -> None:
        settings = self._settings
        consumer = work_consumer(settings.pool, work, settings.ack_wait_s, settings.max_deliver)
        self._opening.add(work)
        try:
            await self._transport.declare_consumer(consumer)
            if not self._is_missing(work):
                return
            pull = await self._transport.pull(
                consumer.queue,
                consumer.name,
                lambda delivery: self._take(work, delivery, pull),
                credit=FIRST,
            )
        except QueueError as error:
            log.warning("the work of %s cannot be pulled, it is tried again: %s", work, error)
            return
        finally:
            self._opening.discard(work)
        if not self._is_missing(work):
            await pull.close()
            return
        self._pulls[work], self._came[work] = pull, Came(0, 0, time.monotonic())
        self._credit.open(pull)

    def _take(self, work: str, delivery: Delivery, pull: Pull) -> None:
        if (came := self._came.get(work)) is not None:
            self._came[work] = came._replace(delivered=came.delivered + 1, waiting=delivery.waiting)
        self._on_delivery(delivery, pull)

    def _close(self, work: str) -> None:
        pull = self._pulls.pop(work)
        del self._came[work]
        self._credit.close(pull)
        self._tasks.start(pull.close())

    def _is_missing(self, work: str) -> bool:
        return self._taking and work in self.pulled and work not in self._pulls
