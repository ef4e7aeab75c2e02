"""Which keys' work is pulled: of those that gateways ask for, or of which work waits, the ones placed here."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress

from sie_cluster.fleet.placement.keys import key_of, token
from sie_cluster.queue.broker import ensure_queue
from sie_cluster.queue.subjects import (
    HEALTH_WANTED,
    KEY_IDLE_S,
    MOST_SUBJECT,
    needed_subject,
    work_consumer,
    work_queue,
)
from sie_cluster.settings import ClusterSettings
from sie_cluster.sidecar.queue.credit import FIRST, Credit
from sie_cluster.sidecar.queue.placing import Placing
from sie_core.concurrency.tasks import Tasks
from sie_core.contracts import Delivery, Message, Pull, QueueError, QueueTransport

LOOK_S = 2.0
"""Between two looks at what waits: a broadcast that was missed costs no more than that."""
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
        held: Counts what is held of each pull.
        credit: Gives pulls more than the first.
        on_change: Called when other keys are pulled, or other keys are behind.
    """

    def __init__(
        self,
        transport: QueueTransport,
        settings: ClusterSettings,
        on_delivery: Callable[[Delivery, Pull], None],
        placing: Placing,
        held: Callable[[], Mapping[Pull, int]],
        credit: Credit,
        on_change: Callable[[], None],
    ) -> None:
        self._transport, self._settings, self._on_delivery = transport, settings, on_delivery
        self._placing, self._held, self._credit, self._on_change = placing, held, credit, on_change
        self._queue = work_queue(settings.pool)
        self._place_of_all = token(settings.pool), token(settings.bundle)
        self._wanted: dict[str, float] = {}
        """When each key was last asked for, the one asked for longest ago first."""
        self._pulls: dict[str, Pull] = {}
        self._opening: set[str] = set()
        self._waiting: Mapping[str, int] = {}
        """What waited at the last look, and what was delivered since."""
        self._delivered: Counter[str] = Counter()
        self._still: frozenset[str] = frozenset()
        self._looked = 0.0
        self._tasks = Tasks()
        self._taking = False
        self._look_now = asyncio.Event()
        self._placing_soon: asyncio.TimerHandle | None = None
        self._may_place_at = 0.0
        self.pulled = frozenset[str]()
        """The subjects whose work is pulled."""

    async def open(self) -> None:
        """Listen for what is asked for, once the queue is there: a worker's user may not make it."""
        await ensure_queue(self._transport, self._queue)
        await self._transport.subscribe(needed_subject(self._settings.pool), self._needed)

    async def look(self) -> None:
        """Look again and again for work that waits, until cancelled."""
        while True:
            if self._taking:
                with suppress(QueueError):
                    await self._look()
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._look_now.wait()
            self._look_now.clear()

    def take(self) -> None:
        """Pull."""
        self._taking = True
        self._look_now.set()
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
        self._look_now.set()

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
        before, self.pulled = self.pulled, self._placing.decide(tuple(self._wanted), self._still)
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
        """Look at what waits, and what of it does not move; ask those for heartbeats whose are overdue."""
        before, delivered = self._waiting, self._delivered
        self._waiting = waiting = await self._transport.backlog(self._queue.name, self._queue.subjects[0])
        self._delivered = Counter()
        now = asyncio.get_running_loop().time()
        for work in waiting:
            self._want(work, waiting)
        for work in [work for work, at in self._wanted.items() if now - at > KEY_IDLE_S]:
            del self._wanted[work]
        self._still = frozenset(work for work, count in waiting.items() if 0 < before.get(work, 0) <= count)
        held, behind = self._held(), self._placing.behind
        own = {work: waiting.get(work, 0) - held.get(pull, 0) for work, pull in self._pulls.items()}
        self._placing.look(now - self._looked, own, delivered)
        self._looked = now
        self.place_soon()
        if behind != self._placing.behind:
            self._on_change()
        for worker in self._placing.overdue():
            await self._transport.send(HEALTH_WANTED, worker.encode())

    def _needed(self, message: Message) -> None:
        self._want(message.payload.decode("utf-8", "replace"))

    def _want(self, work: str, others: Collection[str] = ()) -> None:
        """Have a key placed too, unless that took the place of one of `others`."""
        key = None if len(work) > MOST_SUBJECT or set(work) & set("*> ") else key_of(work)
        if key is None or (key.place[0], key.place[2]) != self._place_of_all:
            return
        is_new = self._wanted.pop(work, None) is None
        self._wanted[work] = asyncio.get_running_loop().time()
        if len(self._wanted) > MOST_KEYS:
            del self._wanted[next((each for each in self._wanted if each not in others), work)]
        if is_new:
            self.place_soon()

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
        self._pulls[work] = pull
        self._credit.open(pull)

    def _take(self, work: str, delivery: Delivery, pull: Pull) -> None:
        self._delivered[work] += 1
        self._on_delivery(delivery, pull)

    def _close(self, work: str) -> None:
        pull = self._pulls.pop(work)
        self._credit.close(pull)
        self._tasks.start(pull.close())

    def _is_missing(self, work: str) -> bool:
        return self._taking and work in self.pulled and work not in self._pulls
