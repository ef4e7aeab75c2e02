"""Clients that each keep one connection and one request in flight."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

import httptools


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back for request `index`, `seconds` after it was written."""

    index: int
    status: int
    seconds: float
    body: bytes


@dataclass(slots=True)
class Round:
    """The requests that the clients share out among themselves, and the answers so far.

    They are handed out in turn, from the start again after the last, until both `least` are and `least_s` seconds have
    passed; what is in flight then is waited for.
    """

    requests: Sequence[bytes]
    least: int
    least_s: float = 0.0
    started: float = 0.0
    ended: float = 0.0
    answers: list[Answer] = field(default_factory=list)
    lost: int = 0
    """Requests whose connection broke."""
    _next: int = 0
    pause_s: float = 0.0
    """Between an answer and the client's next request."""

    def take(self) -> int | None:
        """Hand out the next request, if it is not the end."""
        if self._next >= self.least and time.perf_counter() - self.started >= self.least_s:
            return None
        self._next += 1
        return (self._next - 1) % len(self.requests)


class Client(asyncio.Protocol):
    """One closed-loop client: the next request leaves in the callback that ended the last one."""

    def __init__(self, shared: Round) -> None:
        self.done = asyncio.get_running_loop().create_future()
        self._round = shared
        self._taken: int | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def send(self) -> None:
        """Write the next request, or be done."""
        self._taken = self._round.take()
        if self._taken is None:
            self._finish()
            return
        self._parts: list[bytes] = []
        self._parser = httptools.HttpResponseParser(self)
        self._wrote = time.perf_counter()
        self._transport.write(self._round.requests[self._taken])

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self._parts.append(body)

    def on_message_complete(self) -> None:
        now = time.perf_counter()
        assert self._taken is not None
        body = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        status = self._parser.get_status_code()
        self._round.answers.append(Answer(self._taken, status, now - self._wrote, body))
        self._round.ended = now
        self._taken = None
        asyncio.get_running_loop().call_later(self._round.pause_s, self.send)

    def connection_lost(self, exc: Exception | None) -> None:
        self._round.lost += self._taken is not None
        self._finish()

    def _finish(self) -> None:
        if not self.done.done():
            self.done.set_result(None)
            self._transport.close()


async def drive(host: str, port: int, shared: Round, clients: int, limit_s: float) -> Round:
    """Send the requests of a round from `clients` connections, and return it.

    Raises:
        TimeoutError: They were not all answered within `limit_s` seconds.
    """
    loop = asyncio.get_running_loop()
    made = [await loop.create_connection(lambda: Client(shared), host, port) for _ in range(clients)]
    shared.started = time.perf_counter()
    for _, client in made:
        client.send()
    async with asyncio.timeout(limit_s):
        await asyncio.gather(*(client.done for _, client in made))
    return shared
