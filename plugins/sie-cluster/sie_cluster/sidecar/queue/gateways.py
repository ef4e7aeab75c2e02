"""The gateways that a sidecar hears of, and those that have fallen silent: nobody waits for their work."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from sie_cluster.messages.frames import FrameError, read_head
from sie_cluster.queue.subjects import is_inbox
from sie_cluster.settings import ClusterSettings
from sie_core.contracts import Message, QueueTransport

MISSED_BEATS = 3
STEP_S = 1.0
MOST_KNOWN = 4096
MOST_BEAT_S = 3600.0

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Gateway:
    most_s: float
    silent_s: float = 0.0

    @property
    def is_silent(self) -> bool:
        return self.silent_s > self.most_s


class Gateways:
    """Those of a pool, each by the inbox that its results go to.

    Silence is counted in steps while the broker is connected, so that neither a broker that was away nor a stop of
    this process is taken for the silence of gateways.

    Args:
        transport: Open.
        settings: How long a gateway may be silent at least, and that of one that was never heard.
        on_silent: Called with the inbox of a gateway that has fallen silent.
    """

    def __init__(self, transport: QueueTransport, settings: ClusterSettings, on_silent: Callable[[str], None]) -> None:
        self._transport, self._on_silent = transport, on_silent
        self._least_s = settings.ack_wait_s
        self._usual_s = self._most_s(settings.health_publish_interval_ms / 1000)
        self._known: dict[str, _Gateway] = {}
        """The silent ones too, whose work may be pulled later."""

    def heard(self, message: Message) -> None:
        """Take a heartbeat."""
        try:
            head = read_head(message.payload)
            inbox, beat_s = str(head["inbox"]), float(head["beat_s"])
        except (FrameError, KeyError, TypeError, ValueError) as error:
            log.warning("a gateway's heartbeat cannot be read: %s", error)
            return
        if not is_inbox(f"{inbox}.x", inbox) or not 0 < beat_s <= MOST_BEAT_S:
            log.warning("a gateway's heartbeat names %r, every %g s", inbox[:200], beat_s)
            return
        self._know(inbox, self._most_s(beat_s))

    def is_silent(self, reply: str) -> bool:
        """Whether the gateway of a reply has fallen silent; one never heard of is given as long as any."""
        inbox = inbox_of(reply)
        return (self._known.get(inbox) or self._know(inbox, self._usual_s)).is_silent

    async def listen(self) -> None:
        """Count the silence of each, until cancelled."""
        while True:
            await asyncio.sleep(STEP_S)
            self.step(connected=self._transport.state == "connected")

    def step(self, *, connected: bool) -> None:
        """Count one step of silence; all of them begin anew where there is no connection."""
        for inbox, gateway in list(self._known.items()):
            if gateway.is_silent:
                continue
            gateway.silent_s = gateway.silent_s + STEP_S if connected else 0.0
            if gateway.is_silent:
                log.warning("the gateway of %s was not heard for %g s; its work is dropped", inbox, gateway.silent_s)
                self._on_silent(inbox)

    def _know(self, inbox: str, most_s: float) -> _Gateway:
        """Count the silence of a gateway from now on; whoever was not heard for longest makes room for it."""
        self._known.pop(inbox, None)
        gateway = self._known[inbox] = _Gateway(most_s)
        if len(self._known) > MOST_KNOWN:
            del self._known[next(iter(self._known))]
        return gateway

    def _most_s(self, beat_s: float) -> float:
        return max(MISSED_BEATS * beat_s, self._least_s)


def inbox_of(reply: str) -> str:
    """Return the inbox of the gateway that a request's reply belongs to."""
    return reply.rpartition(".")[0]
