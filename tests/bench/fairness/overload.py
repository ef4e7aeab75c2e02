"""More requests with a deadline than a server can answer: who is answered in time, who is refused, who returns."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from statistics import median

from tests.bench.clients.closed_loop import Round, drive
from tests.bench.processes.running import HOST

CLIENTS = 48
LIMIT_S = 300.0
LONGEST_RETURN_S = 60.0


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer: its status, when it came, after how long, and after which seconds to come back."""

    status: int
    ended: float
    seconds: float
    retry_after_s: float | None


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a server answers without deadlines."""

    per_s: float
    sending_cores: float
    """Cores that this process took meanwhile, of those that the server has too."""


@dataclass(frozen=True, slots=True)
class Goodput:
    """What became of the requests of a time: shares, and the median of refusals in milliseconds."""

    share: float
    """Answers in time a second, of what the server answers without deadlines."""
    sending_cores: float
    """Cores that this process took to send them, several times as many as the server can answer."""
    refusal_ms: float | None
    late: float
    """Requests answered 504, of those sent."""
    kept: float | None
    """Requests answered in time when they came back as they were told, of those that did."""
    returned: int


async def capacity(port: int, requests: Sequence[bytes], seconds: float) -> Capacity:
    """Measure how many requests a second a server answers to `CLIENTS` clients that send one after the other."""
    before = time.process_time()
    found = await drive(HOST, port, Round(requests, 1, seconds), CLIENTS, LIMIT_S)
    took_s, cpu_s = found.ended - found.started, time.process_time() - before
    return Capacity(sum(answer.status == 200 for answer in found.answers) / took_s, cpu_s / took_s)


async def measure(port: int, requests: Sequence[bytes], most: float, times: float, seconds: float) -> Goodput:
    """Send so many times `most` requests a second; who is refused comes back once, when it was told to.

    Args:
        port: Of the server.
        requests: Whole HTTP requests that state a deadline.
        most: What the server answers, from `capacity`.
        times: How much more is sent.
        seconds: For how long new requests come.
    """
    draw, sent, tasks = Random(3), 0, []
    first: list[Reply] = []
    again: list[Reply] = []

    async def one(request: bytes) -> None:
        reply = await _send(port, request)
        first.append(reply)
        if reply.status == 503 and reply.retry_after_s is not None and reply.retry_after_s < LONGEST_RETURN_S:
            await asyncio.sleep(reply.retry_after_s)
            again.append(await _send(port, request))

    began, before = time.perf_counter(), time.process_time()
    due = began
    while (due := due + draw.expovariate(times * most)) < began + seconds:
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        tasks.append(asyncio.create_task(one(requests[sent % len(requests)])))
        sent += 1
    cpu_s = time.process_time() - before
    async with asyncio.timeout(LIMIT_S):
        await asyncio.gather(*tasks)
    good = sum(reply.status == 200 and reply.ended <= began + seconds for reply in first + again)
    refused = [reply.seconds for reply in first if reply.status == 503]
    return Goodput(
        share=good / seconds / most,
        sending_cores=cpu_s / seconds,
        refusal_ms=1000 * median(refused) if refused else None,
        late=sum(reply.status == 504 for reply in first + again) / len(first + again),
        kept=sum(reply.status == 200 for reply in again) / len(again) if again else None,
        returned=len(again),
    )


async def _send(port: int, request: bytes) -> Reply:
    """Ask on a connection of its own; plain sockets, as streams take three times the CPU of the cores measured."""
    loop, started = asyncio.get_running_loop(), time.perf_counter()
    with socket.socket() as connection:
        connection.setblocking(False)
        await loop.sock_connect(connection, (HOST, port))
        await loop.sock_sendall(connection, request)
        reply = await _receive(connection)
        while b"\r\n\r\n" not in reply:
            reply += await _receive(connection)
        ended = time.perf_counter()
        head, _, body = reply.partition(b"\r\n\r\n")
        fields = head.decode("latin-1").lower()
        left = int(_field(fields, "content-length") or 0) - len(body)
        while left > 0:
            left -= len(await _receive(connection))
    retry_after = _field(fields, "retry-after")
    return Reply(int(fields.split(" ", 2)[1]), ended, ended - started, float(retry_after) if retry_after else None)


async def _receive(connection: socket.socket) -> bytes:
    received = await asyncio.get_running_loop().sock_recv(connection, 65536)
    if not received:
        raise ConnectionError("the server closed the connection before its answer")
    return received


def _field(head: str, name: str) -> str | None:
    _, found, rest = head.partition(f"\r\n{name}: ")
    return rest.split("\r\n", 1)[0] if found else None
