"""Pulling from a consumer by credit: requests that linger at the broker, topped up as their messages come."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from nats.aio.subscription import Subscription
from nats.errors import Error

from sie_core.contracts import Delivery, QueueError
from sie_nats.client import Arrived
from sie_nats.connection import Connection
from sie_nats.streams import nanoseconds

LINGER_S = 30.0
"""Seconds for which a request for messages stays at the broker."""
LEAST_LINGER_S = 2.5
"""The broker wants room for two heartbeats."""
HEARTBEAT_S = 1.0
"""Interval at which the broker confirms that a request still stands; after three missed ones it is sent again."""
CLOSE_S = 2.0
"""Seconds for the broker to notice that a pull has ended; a stalled one is left to the ack wait."""
DECLARE_S = 2.0
"""Seconds to make a consumer again: brokers that elect a leader do not answer, and the consumer may be there."""
AGAIN_S = 1.0
"""Seconds before a refused creation of a consumer, or a refused pull, is retried."""
GONE = ("consumer deleted", "no responders")

log = logging.getLogger("sie_nats")


class JetStreamDelivery(Delivery):
    """One message, with the subject that takes its answers."""

    __slots__ = ("_answers", "_connection", "_done", "attempt", "payload", "sequence", "subject", "waiting")

    def __init__(self, connection: Connection, message: Arrived) -> None:
        self._connection, self._answers, self._done = connection, message.reply, False
        self.subject, self.payload = message.subject, message.data
        # $JS.ACK.[domain.account.]stream.consumer.deliveries.sequence.consumer sequence.time.pending[.random]
        tokens = message.reply.split(".")
        first = 4 if len(tokens) == 9 else 6
        self.attempt, self.sequence = int(tokens[first]), int(tokens[first + 1])
        self.waiting = int(tokens[first + 4])

    def ack(self) -> None:
        """Remove the message from the queue."""
        self._end(b"+ACK")

    def nak(self, delay_s: float = 0.0) -> None:
        """Have it delivered again, after a delay."""
        self._end(b"-NAK" if delay_s <= 0 else b'-NAK {"delay": %d}' % nanoseconds(delay_s))

    def in_progress(self) -> None:
        """Begin the consumer's `ack_wait_s` anew."""
        if not self._done:
            self._connection.send_soon(self._answers, b"+WPI")

    def _end(self, answer: bytes) -> None:
        if not self._done:
            self._done = True
            self._connection.send_soon(self._answers, answer)


class JetStreamPull:
    """A subscription of one consumer."""

    def __init__(
        self,
        connection: Connection,
        queue: str,
        consumer: str,
        take: Callable[[Delivery], None],
        declare_again: Callable[[], Awaitable[None]],
        linger_s: float = LINGER_S,
    ) -> None:
        self._connection, self._take, self._declare_again = connection, take, declare_again
        self._asks = f"$JS.API.CONSUMER.MSG.NEXT.{queue}.{consumer}"
        self._consumer, self._linger_s = consumer, linger_s
        self._inbox = connection.new_inbox()
        self._subscription: Subscription | None = None
        self._numbers = 0
        self._most = 0
        """The largest credit so far: a new request is sent once half of it is used up."""
        self._requested = 0
        """Requested messages that have not arrived."""
        self._heard = 0.0
        self._check: asyncio.TimerHandle | None = None
        self._again: asyncio.TimerHandle | None = None
        self._comes_back = False
        self.credit = 0
        self.closed = False

    async def open(self, credit: int) -> None:
        """Subscribe and ask for the first messages."""
        self._subscription = await self._connection.subscribe(f"{self._inbox}.*", self._arrived)
        self.credit = self._most = credit
        self.top_up()
        self._listen(asyncio.get_running_loop().time())

    def add_credit(self, messages: int) -> None:
        """Add to the credit."""
        if not self.closed:
            self.credit += messages
            self._most = max(self._most, self.credit)
            self.top_up()

    def top_up(self) -> None:
        """Request the missing messages, seldom: each request costs the broker as much as a message."""
        missing = self.credit - self._requested
        if self.closed or missing <= 0 or (self._requested > 0 and missing < self._most // 2):
            return
        if self._requested == 0:
            self._heard = asyncio.get_running_loop().time()
        self._numbers += 1
        self._requested += missing
        wish = {
            "batch": missing,
            "expires": nanoseconds(self._linger_s),
            "idle_heartbeat": nanoseconds(HEARTBEAT_S),
        }
        self._connection.send_soon(self._asks, json.dumps(wish).encode(), f"{self._inbox}.{self._numbers}")

    def renew(self) -> None:
        """Request again after a reconnection: the broker dropped the requests of the old one."""
        self._requested = 0
        self.top_up()

    async def close(self) -> None:
        """Stop pulling; messages in transit return at once."""
        if self.closed:
            return
        self.closed, self.credit = True, 0
        if self._check is not None:
            self._check.cancel()
        if self._subscription is not None and self._connection.state == "connected":
            # Drains: nothing comes after the broker has seen the end, and all before it is handed back.
            with suppress(TimeoutError, Error, OSError):
                async with asyncio.timeout(CLOSE_S):
                    await self._subscription.drain()  # type: ignore[no-untyped-call]

    def _listen(self, due: float) -> None:
        """Check whether the broker still knows the request: a consumer that ends may drop it silently."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        if now - due > HEARTBEAT_S:
            # This process itself stalled: messages that arrived meanwhile are unread, and the request may still stand.
            self._heard = now
        if self._requested > 0 and now - self._heard > 3 * HEARTBEAT_S and self._connection.state == "connected":
            self._heard = now
            self.renew()
            self._come_back_soon()
        self._check = loop.call_later(HEARTBEAT_S, self._listen, now + HEARTBEAT_S)

    def _arrived(self, message: Arrived) -> None:
        self._heard = asyncio.get_running_loop().time()
        if message.subject.startswith(self._inbox):
            self._status(message)
            return
        delivery = JetStreamDelivery(self._connection, message)
        self._requested = max(0, self._requested - 1)
        if self.closed or self.credit <= 0:
            delivery.nak()
            return
        self.credit -= 1
        self._take(delivery)

    def _status(self, message: Arrived) -> None:
        """A request ended: its time is over, or the consumer is gone."""
        headers = message.headers()
        if headers.get("Status") == "100":
            return
        described = f"{headers.get('Status', '')} {headers.get('Description', '')}".strip()
        self._requested = max(0, self._requested - int(headers.get("Nats-Pending-Messages", self._requested)))
        if self.closed:
            return
        if described.startswith("503") or any(each in described.lower() for each in GONE):
            self._requested = 0
            self._come_back_soon()
            return
        if described.startswith(("404", "408")):
            self.top_up()
            return
        if self._again is None:  # several requests may end together
            log.warning("a pull from the consumer %s ended: %s", self._consumer, described)
            # Retry later: the broker would refuse again at once.
            self._again = asyncio.get_running_loop().call_later(AGAIN_S, self._try_again)

    def _try_again(self) -> None:
        self._again = None
        self.top_up()

    def _come_back_soon(self) -> None:
        if not self._comes_back:
            self._comes_back = True
            self._connection.run(self._come_back())

    async def _come_back(self) -> None:
        """Make a consumer that the broker removed again."""
        try:
            async with asyncio.timeout(DECLARE_S):
                await self._declare_again()
        except (QueueError, TimeoutError) as error:
            told = str(error) or f"no answer in {DECLARE_S:g} s"
            log.warning("the consumer %s cannot be made again: %s", self._consumer, told)
            await asyncio.sleep(AGAIN_S)
        self._comes_back = False
        if self._requested == 0:
            self.top_up()
