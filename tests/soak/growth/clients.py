"""The clients of a soak, a process of their own: reads a job from stdin, writes what was answered.

`python -m tests.soak.growth.clients`.
"""

from __future__ import annotations

import asyncio
import re
import socket
import struct
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import orjson
import uvloop

from tests.bench.operations.talking import Orders
from tests.soak.growth.mix import MIXES, NO_ANSWER, OK, Kind, Random, call, request
from tests.soak.growth.models import ROUND

WARM_UP = 1 / 3
"""The part of a soak that is not judged: models load for the first time, heaps and caches grow to their size."""
WARM_UP_PACE = 4.0
"""How much faster requests come meanwhile: a heap settles with the number of requests, not with time."""
EXTRA_S = 150.0
ANSWER_S = 60.0
"""For one answer."""
SOON_S = 0.005
REST_S = 0.6
"""How long nothing is loaded once all that was loaded in a round is gone."""
LOOK_S = 0.2
_LENGTH = re.compile(rb"^content-length: *(\d+)", re.IGNORECASE | re.MULTILINE)
_CODE = re.compile(rb'"code": ?"([A-Za-z_]+)"')


@dataclass(frozen=True, slots=True)
class Job:
    """What to do."""

    host: str
    port: int
    mix: str
    seconds: float
    """For so long at least, and `EXTRA_S` longer at most, to see enough rests."""
    rests: int
    """How often to see the server at rest in the later two thirds of that time."""
    clients: int
    rate: float
    """Requests a second of all clients together."""
    seed: int = 20


@dataclass(slots=True)
class Tally:
    """How often each kind of request was answered with what."""

    answers: dict[str, Counter[str]] = field(default_factory=dict)
    surprises: list[str] = field(default_factory=list)
    rests: list[tuple[float, float]] = field(default_factory=list)
    """From when until when none of the models was loaded that come and go; seconds of the monotonic clock."""

    def add(self, kind: str, answer: str, expected: frozenset[str], body: bytes) -> None:
        """Count an answer."""
        self.answers.setdefault(kind, Counter())[answer] += 1
        if answer not in expected:
            self.surprises.append(f"{kind}: {answer} {body[:300]!r}")


class Connection:
    """A client's connection, opened when needed and kept where the server keeps it."""

    def __init__(self, host: str, port: int) -> None:
        self._address = host, port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, data: bytes) -> tuple[str, bytes]:
        """Send a request; return the answer's status, with the error's code, and its body."""
        try:
            async with asyncio.timeout(ANSWER_S):
                return await self._ask(data)
        except (OSError, EOFError, TimeoutError) as error:
            self.close()
            return type(error).__name__, b""

    async def leave(self, data: bytes, after_s: float) -> None:
        """Send a request on a connection of its own and hang up; every other time with a reset."""
        _, writer = await asyncio.open_connection(*self._address)
        writer.write(data)
        await asyncio.sleep(after_s)
        if len(data) % 2:
            connection: socket.socket = writer.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.close()

    def close(self) -> None:
        """Close it; the next request opens another."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def _ask(self, data: bytes) -> tuple[str, bytes]:
        reader, writer = self._streams = self._streams or await asyncio.open_connection(*self._address)
        writer.write(data)
        head = await reader.readuntil(b"\r\n\r\n")
        length = _LENGTH.search(head)
        body = await (reader.readexactly(int(length[1])) if length else reader.read())
        if length is None or b"connection: close" in head.lower():
            self.close()
        status = head.split(maxsplit=2)[1].decode()
        code = _CODE.search(body) if status != OK else None
        return f"{status} {code[1].decode()}" if code else status, body


async def work(job: Job) -> Tally:
    """Run the clients for as long as the job says."""
    tally, over = Tally(), asyncio.Event()
    randoms = [np.random.default_rng([job.seed, place]) for place in range(job.clients)]
    async with asyncio.TaskGroup() as group:
        for random in randoms:
            group.create_task(_client(job, random, tally, over))
        began = time.monotonic()
        if job.rests:
            await _push(job, tally, began)
        await asyncio.sleep(began + job.seconds - time.monotonic())
        over.set()
    return tally


async def _client(job: Job, random: Random, tally: Tally, over: asyncio.Event) -> None:
    kinds = MIXES[job.mix]
    weights = np.array([kind.weight for kind in kinds])
    connection = Connection(job.host, job.port)
    warm = time.monotonic() + job.seconds * WARM_UP
    while not over.is_set():
        pace = WARM_UP_PACE if time.monotonic() < warm else 1.0
        await asyncio.sleep(random.exponential(job.clients / job.rate / pace))
        await _do(kinds[int(random.choice(len(kinds), p=weights / weights.sum()))], connection, random, tally)
    connection.close()


async def _do(kind: Kind, connection: Connection, random: Random, tally: Tally) -> None:
    sent = kind.make(random)
    if sent.leaves == "stays":
        answer, body = await connection.ask(sent.data)
    else:
        await connection.leave(sent.data, SOON_S if sent.leaves == "soon" else 0.0)
        answer, body = NO_ANSWER, b""
    tally.add(kind.name, answer, kind.expected, body)


async def _push(job: Job, tally: Tally, began: float) -> None:
    """Have models loaded that push each other out, wait until they are gone, and note when nothing is loaded."""
    connection = Connection(job.host, job.port)
    later = began + job.seconds * WARM_UP
    while (passed := time.monotonic() - began) < job.seconds + EXTRA_S:
        if passed > job.seconds and sum(start > later for start, _ in tally.rests) >= job.rests:
            break
        await _round(ROUND, connection, tally)
        start = time.monotonic()
        await asyncio.sleep(REST_S)
        tally.rests.append((start, time.monotonic()))
    connection.close()


async def _round(models: Sequence[str], connection: Connection, tally: Tally) -> None:
    for model in models:
        answer, body = await connection.ask(call("encode", model, items=[{"text": "a"}]))
        tally.add("loads", answer, frozenset({OK}), body)
    async with asyncio.timeout(ANSWER_S):
        while await _loaded(models, connection):  # noqa: ASYNC110 -- only the server knows
            await asyncio.sleep(LOOK_S)


async def _loaded(models: Sequence[str], connection: Connection) -> bool:
    _, body = await connection.ask(request("GET", "/v1/models"))
    return any(told["loaded"] for told in orjson.loads(body)["models"] if told["name"] in models)


def main() -> None:
    """Do one job after the other."""
    orders = Orders()
    for order in orders:
        tally = uvloop.run(work(Job(**order)))
        orders.answer({"answers": tally.answers, "surprises": tally.surprises, "rests": tally.rests})


if __name__ == "__main__":
    main()
