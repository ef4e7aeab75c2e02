"""One connection of nats-py, kept honest: bounded buffers, a watchdog, reconnection without end.

nats-py itself waits for an old socket with unsent bytes before it turns to another server. Its read loop ends at an
unforeseen exception, while it still reports being connected. The watchdog asks for a round trip each second and aborts
the socket that does not answer.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any

from nats import errors
from nats.aio.subscription import Subscription

from sie_core.contracts import ConnectionState, QueueError
from sie_nats.client import DirectClient, Take
from sie_nats.moving import Turns
from sie_nats.options import Options

OPEN_S = 5.0
"""Timeout of the first connection in seconds."""
API_S = 5.0
"""Timeout of a request to the broker about streams, consumers and stores, in seconds."""
STALE_S = 2.0
"""A connection without a round trip for this many seconds is replaced."""
STEPS = 4
ANSWER_S = 3600
"""The client's own bound on an answer, which the watchdog is ahead of."""
CHECK_S = 1.0
CLOSE_S = 5.0
MOST_UNSENT = 32 << 20
"""Bytes handed over and not yet sent; beyond it `UNAVAILABLE`."""
NOT_FOUND = (10014, 10037, 10059)
"""JetStream's error codes: no such consumer, message, stream."""

REFUSED = re.compile(r"permissions violation for (publish|subscription) to \"([^\"]+)\"", re.IGNORECASE)

log = logging.getLogger("sie_nats")


class Connection:
    """The connection, and questions to JetStream."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self._client = DirectClient()
        self._watchdog: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._on_state: Callable[[ConnectionState], None] = lambda _: None
        self._state: ConnectionState = "closed"
        self._asked: dict[str, list[asyncio.Future[None]]] = {}
        """Requests in flight, by their subjects in lower case; resolved if the broker refuses one."""
        self._at = ""
        """The address of the broker that it is, or was, connected to."""
        self._turns = Turns(lambda: asyncio.get_running_loop().time())

    @property
    def state(self) -> ConnectionState:
        """Whether messages can be sent now."""
        return self._state if self._state == "closed" or self._client.is_connected else "reconnecting"

    @property
    def max_payload(self) -> int:
        """Bytes of the largest message that the broker takes."""
        return self._client.max_payload

    async def open(self, on_state: Callable[[ConnectionState], None]) -> None:
        """Connect.

        Raises:
            QueueError: `DENIED`, `UNAVAILABLE`.
        """
        self._on_state = on_state
        loop = asyncio.get_running_loop()
        denied: asyncio.Future[None] = loop.create_future()

        async def failed(error: Exception) -> None:
            log.debug("the connection to %s: %s", self.options.url, error)
            if (found := REFUSED.search(str(error))) is not None:
                self._refused(*found.groups())
            if "authorization" in str(error).lower() and not denied.done():
                denied.set_result(None)

        connecting = loop.create_task(
            self._client.connect(
                servers=list(self.options.servers),
                error_cb=failed,
                disconnected_cb=self._lost,
                reconnected_cb=self._found,
                reconnect_to_server_handler=self._turns.choose,
                max_reconnect_attempts=-1,
                reconnect_time_wait=1,
                connect_timeout=2,
                ping_interval=20,
                inbox_prefix=self.options.inbox_prefix,
                # Without a connection nothing is buffered: senders get an error at once.
                pending_size=0,
                **self.options.of_client(),
            )
        )
        # If the broker refuses the user, the client retries forever; stop it.
        await asyncio.wait((connecting, denied), timeout=OPEN_S, return_when=asyncio.FIRST_COMPLETED)
        if not connecting.done() or connecting.exception() is not None:
            cause = connecting.exception() if connecting.done() else None
            connecting.cancel()
            await asyncio.wait((connecting,))
            await self._end_client()
            if denied.done() or "authorization" in str(cause).lower():
                raise QueueError("DENIED", f"{self.options.url} refuses this user.")
            raise QueueError("UNAVAILABLE", f"{self.options.url} cannot be reached.") from cause
        denied.cancel()
        self._at, self._state = self._address(), "connected"
        self._watchdog = asyncio.create_task(self._watch())
        self._on_state("connected")

    async def close(self) -> None:
        """Send the pending messages, then disconnect."""
        if self._state == "closed":
            return
        self._state = "closed"
        for task in (self._watchdog, *self._tasks):
            if task is not None:
                task.cancel()
        with suppress(TimeoutError, errors.Error, OSError):
            async with asyncio.timeout(CLOSE_S):
                await self._client.flush(int(CLOSE_S))
        await self._end_client()
        self._on_state("closed")

    async def _end_client(self) -> None:
        self._abort()
        with suppress(TimeoutError, errors.Error, OSError):
            async with asyncio.timeout(CLOSE_S):
                await self._client.close()

    async def send(
        self, subject: str, payload: bytes, reply: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        """Send one message.

        Raises:
            QueueError: `UNAVAILABLE`, `TOO_LARGE`: nothing was sent.
        """
        self._check(payload)
        try:
            self._client.send_now(subject, payload, reply, headers)
        except errors.Error as error:
            raise QueueError("UNAVAILABLE", f"{self.options.url}: {error}") from None

    def send_soon(
        self, subject: str, payload: bytes, reply: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        """Send a small message; it is lost without a connection."""
        with suppress(errors.Error):
            self._client.send_now(subject, payload, reply, headers)

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a background task; it ends with the connection."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def subscribe(self, subject: str, take: Take) -> Subscription:
        """Take the messages to a subject; it stays subscribed over reconnections."""
        self._check(b"")
        return await self._client.take(subject, take)

    async def ask(self, subject: str, question: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Ask JetStream's API; `subject` without its prefix.

        Raises:
            QueueError: With the failure.
        """
        self._check(b"")
        body = b"" if question is None else json.dumps(question).encode()
        full = f"$JS.API.{subject}"
        refused: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = self._asked.setdefault(full.lower(), [])
        waiting.append(refused)
        asking = asyncio.ensure_future(self._client.request(full, body, timeout=API_S))
        try:
            await asyncio.wait((asking, refused), return_when=asyncio.FIRST_COMPLETED)
            if refused.done() and not asking.done():
                raise QueueError("DENIED", f"{self.options.url} refuses {full} to this user.")
            reply = await asking
        except errors.NoRespondersError:
            raise QueueError("UNAVAILABLE", f"{self.options.url} has no JetStream, or none has a leader.") from None
        except (errors.Error, TimeoutError):
            raise QueueError("UNAVAILABLE", f"{self.options.url} did not answer {subject}.") from None
        finally:
            asking.cancel()
            waiting.remove(refused)
            if not waiting:
                self._asked.pop(full.lower(), None)
        answer: dict[str, Any] = json.loads(reply.data)
        if "error" in answer:
            raise api_error(answer["error"], subject)
        return answer

    @property
    def brokers(self) -> int:
        """How many it may connect to, those that a broker told it of included; 0 while it is not connected."""
        return len(self._client.servers) if self._client.is_connected else 0

    def leave(self, why: str) -> None:
        """Give the broker up for another."""
        log.warning("%s %s; the connection is cut", self._at, why)
        self._abort()

    def _address(self) -> str:
        url = self._client.connected_url
        return self.options.url if url is None else str(url.netloc)

    def _refused(self, what: str, subject: str) -> None:
        """Report a refusal to whoever made the request."""
        log.error("%s refuses this user to %s %s", self.options.url, what, subject)
        for asked in self._asked.get(subject.lower(), ()):
            if not asked.done():
                asked.set_result(None)

    def new_inbox(self) -> str:
        """Return a subject that nobody else can guess."""
        return self._client.new_inbox()

    @property
    def client(self) -> DirectClient:
        """The client of nats-py, for its key-value store."""
        return self._client

    def require(self, payload: bytes = b"") -> None:
        """Check that there is a connection that takes this payload.

        Raises:
            QueueError: `UNAVAILABLE`, `TOO_LARGE`.
        """
        self._check(payload)

    def _check(self, payload: bytes) -> None:
        if self.state != "connected":
            raise QueueError("UNAVAILABLE", f"The connection to {self.options.url} is {self.state}.")
        if len(payload) > self.max_payload:
            told = f"A message of {len(payload)} bytes is beyond the {self.max_payload} that {self.options.url} takes."
            raise QueueError("TOO_LARGE", told)
        if self._client.pending_data_size + len(payload) > MOST_UNSENT or self._unsent() > MOST_UNSENT:
            raise QueueError(
                "UNAVAILABLE", f"{self.options.url} does not keep up: {MOST_UNSENT} bytes are not sent yet."
            )

    async def _lost(self) -> None:
        if self._state != "closed":
            log.warning("the connection to %s is lost; it is made again", self._at)
            self._turns.left(self._at)
            self._state = "reconnecting"
            self._on_state("reconnecting")

    async def _found(self) -> None:
        if self._state != "closed":
            self._at = self._address()
            log.info("connected to %s again", self._at)
            self._state = "connected"
            self._on_state("connected")

    async def _watch(self) -> None:
        served = self._writer()
        while True:
            await asyncio.sleep(CHECK_S)
            try:
                served = await self._look(served)
            except Exception:  # without this task, a hanging connection would go unnoticed
                log.exception("the connection to %s could not be looked at; it is tried again", self.options.url)

    async def _look(self, served: asyncio.StreamWriter | None) -> asyncio.StreamWriter | None:
        """Cut the connection if it does not answer; return the socket that is served."""
        if self._client.is_reconnecting:
            # Drop only the lost socket: the next one may be at its handshake.
            if self._writer() is served:
                self._abort()
            return served
        served = self._writer()
        if self._client.is_connected and not await self._round_trip():
            log.warning("%s does not answer; the connection is cut", self._at)
            self._abort()
            reading = self._client._reading_task
            if reading is None or reading.done():
                await self._client._process_op_err(errors.StaleConnectionError())
        return served

    async def _round_trip(self) -> bool:
        # Without the sending task, nats-py's own round trip is useless: it sends nothing, and reports that all is well.
        if any(task is None or task.done() for task in (self._client._reading_task, self._client._flusher_task)):
            return False
        asked = asyncio.create_task(self._client.flush(ANSWER_S))
        try:
            # In steps: if this process itself stalled, an answer that arrived meanwhile is read before the next.
            for _ in range(STEPS):
                if (await asyncio.wait((asked,), timeout=STALE_S / STEPS))[0]:
                    break
            if asked.done() and asked.exception() is None:
                return True
        finally:
            asked.cancel()
        # A lost connection is already being replaced.
        return not self._client.is_connected

    def _abort(self) -> None:
        """Drop the socket with its unsent data; nats-py would wait for it forever."""
        if (writer := self._writer()) is not None:
            writer.transport.abort()

    def _unsent(self) -> int:
        writer = self._writer()
        return 0 if writer is None else writer.transport.get_write_buffer_size()

    def _writer(self) -> asyncio.StreamWriter | None:
        return getattr(self._client._transport, "_io_writer", None)


def api_error(error: Mapping[str, Any], subject: str) -> QueueError:
    """Translate an error of JetStream's API."""
    described = f"{subject}: {error.get('description', error)}"
    if error.get("err_code") in NOT_FOUND:
        return QueueError("NOT_FOUND", described)
    return QueueError("UNAVAILABLE" if error.get("code", 500) >= 500 else "CONFIG", described)
