"""What a gateway tells workers without being asked: that it lives, and which keys are asked for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from contextlib import suppress

from sie_cluster.messages.frames import encode
from sie_cluster.queue.subjects import HEALTH_WANTED, gateways_subject, needed_subject, waiting_subject
from sie_core.contracts import QueueError, QueueTransport

NEEDED_S = 30.0
"""How often workers are told at most that a model is asked for."""
AGAIN_S = 5.0
"""How often at most that work of it waits in the queue: who missed the other, or begins, hears it by then."""


class Telling:
    """The broadcasts of one gateway.

    Args:
        transport: Gives the transport.
        pools: The queue pools that requests go to.
        beat_s: Between two heartbeats.
    """

    def __init__(self, transport: Callable[[], QueueTransport], pools: Collection[str], beat_s: float) -> None:
        self._transport, self._pools, self._beat_s = transport, pools, beat_s
        self._told: dict[str, float] = {}
        """When each subject was last told of, the one told longest ago first."""
        self._waits: dict[str, float] = {}
        """When it was last told that work of each subject waits, in the same order."""
        self.inbox = ""
        """Where results come."""

    def forget(self) -> None:
        """Tell everything anew once it is asked for."""
        self._told.clear()

    async def needed(self, pool: str, subject: str) -> None:
        """Have workers of a pool pull the work of a subject, where they were not told lately."""
        if _is_due(self._told, subject, NEEDED_S):
            try:
                await self._transport().send(needed_subject(pool), subject.encode())
            except QueueError:
                self._told.pop(subject, None)

    async def waits(self, pool: str, subject: str) -> None:
        """Tell them that work of a subject waits, where they were not told lately: whoever pulls it may be gone."""
        if _is_due(self._waits, subject, AGAIN_S):
            with suppress(QueueError):
                await self._transport().send(waiting_subject(pool), subject.encode())

    async def beat(self) -> None:
        """Tell workers again and again that this gateway waits for its results, until cancelled."""
        while True:
            await self.alive()
            await asyncio.sleep(self._beat_s)

    async def alive(self) -> None:
        """Tell them once."""
        head = {"inbox": self.inbox, "beat_s": self._beat_s}
        for pool in tuple(self._pools):
            with suppress(QueueError):
                await self._transport().send(gateways_subject(pool), encode(head))

    async def ask_for_beats(self) -> None:
        """Ask every worker for a heartbeat."""
        with suppress(QueueError):
            await self._transport().send(HEALTH_WANTED, b"")


def _is_due(told: dict[str, float], subject: str, pause_s: float) -> bool:
    """Whether a subject was not told within a time; it counts as told from now on."""
    now = time.monotonic()
    while told and now - next(iter(told.values())) >= pause_s:
        del told[next(iter(told))]
    if subject in told:
        return False
    told[subject] = now
    return True
