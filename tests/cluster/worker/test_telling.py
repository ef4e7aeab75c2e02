"""What an adapter process tells its sidecar of itself, by which connection, and how often."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

from sie_cluster.ipc.framing import FrameStream, Kind, read_queued
from sie_cluster.ipc.listening import listen_on
from sie_cluster.messages.status import WorkerStatus, decode_status, encode_status
from sie_cluster.worker.answering import WorkerBackend
from sie_cluster.worker.intake import Intake
from sie_cluster.worker.queued import QueuedReports
from sie_cluster.worker.vitals import to_the_minute

from sie_core.contracts import ModelInfo

BOUND_S = 30.0
MODEL = ModelInfo("org/a", ("text",), ("dense",), dims={"dense": 8}, state="loaded", last_used_at=1_000_000_021.5)


class Told:
    """The connections of one sidecar, and what comes by each."""

    def __init__(self, connections: int) -> None:
        self.came: list[list[tuple[Kind, bytes]]] = [[] for _ in range(connections)]
        self.streams: list[FrameStream] = []
        self._some = asyncio.Event()

    async def connect(self, path: Path) -> None:
        loop = asyncio.get_running_loop()
        for number in range(len(self.came)):
            _, stream = await loop.create_unix_connection(lambda number=number: self._stream(number), str(path))  # type: ignore[misc]
            self.streams.append(stream)

    def _stream(self, number: int) -> FrameStream:
        return FrameStream(lambda _: None, lambda _, kind, __, frame: self._take(number, kind, frame), lambda _: None)

    def _take(self, number: int, kind: Kind, frame: bytes) -> None:
        self.came[number].append((kind, frame))
        self._some.set()

    async def answered(self, number: int) -> None:
        """Ping by a connection, and wait for the answer: what was sent by it before is there."""
        await self._until(number)  # the one that each connection begins with
        self.came[number].remove((Kind.PING, b""))
        self.streams[number].send(Kind.PING, 0, b"w1")
        await self._until(number)
        self.came[number].remove((Kind.PING, b""))
        self.came[number].insert(0, (Kind.PING, b""))

    async def _until(self, number: int) -> None:
        async with asyncio.timeout(BOUND_S):
            while (Kind.PING, b"") not in self.came[number]:
                self._some.clear()
                await self._some.wait()

    def take(self) -> list[list[tuple[Kind, bytes]]]:
        """Give what came since the last time, without the answers to pings."""
        came = [[each for each in of_one if each[0] is not Kind.PING] for of_one in self.came]
        for of_one in self.came:
            of_one[:] = [each for each in of_one if each[0] is Kind.PING]
        return came


async def test_a_sidecar_is_told_once_by_the_connection_that_it_pings_by(tmp_path: Path) -> None:
    status, vitals = [b"ready"], [b"1 GB"]
    intake = Intake(cast("WorkerBackend", None), lambda: status[0], lambda: (0.0, True), vitals=lambda: vitals[0])
    server = await asyncio.get_running_loop().create_unix_server(intake.stream, sock=listen_on(tmp_path / "ipc"))
    first, second = Told(3), Told(2)
    await first.connect(tmp_path / "ipc")
    await first.answered(0)
    assert first.take() == [[(Kind.STATUS, b"ready"), (Kind.VITALS, b"1 GB")], [], []]
    status[0] = b"draining"
    await second.connect(tmp_path / "ipc")  # which takes the place of the first
    await second.answered(0)
    await first.answered(0)
    assert first.take() == [[(Kind.STATUS, b"draining")], [], []]
    assert second.take() == [[(Kind.STATUS, b"draining"), (Kind.VITALS, b"1 GB")], []]
    vitals[0] = b"2 GB"
    intake.tell()
    intake.tell()
    for sidecar in (first, second):
        await sidecar.answered(0)
        told, *others = sidecar.take()
        assert told == [(Kind.VITALS, b"2 GB")]
        assert not any(others)
    for stream in (*first.streams, *second.streams):
        stream.abort()
    server.close()


def test_a_model_that_is_in_use_makes_another_status_once_a_minute() -> None:
    def told(*used_at: float | None) -> list[bytes]:
        return [written([replace(MODEL, last_used_at=at)]) for at in used_at]

    def written(models: Sequence[ModelInfo]) -> bytes:
        return encode_status(WorkerStatus(ready=True, models=to_the_minute(models)))

    never, first, soon, later = told(None, 1_000_000_020.0, 1_000_000_079.9, 1_000_000_080.0)
    assert first == soon
    assert len({never, first, later}) == 3
    assert decode_status(soon).models == [replace(MODEL, last_used_at=1_000_000_020.0)]
    assert decode_status(never).models == [replace(MODEL, last_used_at=None)]


async def test_a_look_tells_what_is_queued_where_it_has_changed_alone() -> None:
    sent: list[tuple[Kind, float]] = []
    some, batches = asyncio.Event(), [0.0]

    class Stream:
        def send(self, kind: Kind, number: int, payload: bytes) -> None:
            sent.append((kind, read_queued(payload)))
            some.set()

    reports = QueuedReports(lambda: (batches[0], True), 1000, lambda: cast("FrameStream", Stream()))
    for queued in (0.0, 3.0, 3.1, 0.0):  # a tenth of a batch is no news, the end of the last one is
        batches[0] = queued
        before = len(sent)
        some.clear()
        reports.look()
        if reports._reporting is not None:
            async with asyncio.timeout(BOUND_S):
                await some.wait()
            assert len(sent) == before + 1
    assert sent == [(Kind.QUEUED, 3.0), (Kind.QUEUED, 0.0)]
