"""What moves large payloads between the processes of a cluster gives way to small results. In virtual time."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from sie_cluster.ipc import framing
from sie_cluster.ipc.framing import FrameStream, Kind
from sie_cluster.queue.payloads import fetching, store
from sie_cluster.queue.payloads.fetching import Fetcher
from sie_cluster.queue.payloads.holding import Holder
from sie_cluster.queue.payloads.store import PayloadStore
from sie_fake.broker.queue import in_process_transports

from sie_core.concurrency.pacing import BYTES_S, GIVES_WAY_S, LARGE_BYTES, LATE_S, Pacing
from sie_core.folder_store import FolderStore
from tests.engine.virtual_time import VirtualTimeLoop

PAYLOAD = bytes(range(256)) * (64 << 10)
LEAST_S = len(PAYLOAD) / BYTES_S - LATE_S - LARGE_BYTES / BYTES_S
"""Its last piece leaves when those before it had their time."""


def seconds(move: Callable[[], Coroutine[Any, Any, None]], module: Any, *, beside: bool) -> float:
    """How many virtual seconds it takes, beside small answers or without."""

    async def moved() -> None:
        await asyncio.wait_for(move(), 30)

    async def answers(pacing: Pacing) -> None:
        while True:
            pacing.answered(1)
            await asyncio.sleep(GIVES_WAY_S / 2)

    async def all_of_it(pacing: Pacing) -> None:
        small = asyncio.create_task(answers(pacing)) if beside else None
        await asyncio.sleep(0)
        await moved()
        if small is not None:
            small.cancel()

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner, pytest.MonkeyPatch.context() as patch:
        loop = runner.get_loop()
        pacing = Pacing(loop.time)
        patch.setattr(module, "PACING", pacing)
        runner.run(all_of_it(pacing))
        return loop.time()


async def by_frames() -> None:
    (factory,) = in_process_transports()
    one, other = (factory.create("memory://paced", {}) for _ in range(2))
    await one.open()
    await other.open()
    offer = await Holder(one, 1 << 30).offer(PAYLOAD)
    assert await Fetcher(other).fetch(offer) == PAYLOAD
    await one.close()
    await other.close()


async def by_socket() -> None:
    loop, (ours, theirs) = asyncio.get_running_loop(), socket.socketpair()
    came: list[tuple[int, bytes]] = []
    whole, opened = asyncio.Event(), asyncio.Event()

    def took(_: FrameStream, kind: Kind, number: int, payload: bytes) -> None:
        came.append((number, bytes(payload)))
        if number == 1:
            whole.set()

    receiver = FrameStream(lambda _: None, took, lambda _: None)
    sender = FrameStream(lambda _: opened.set(), lambda *_: None, lambda _: None)
    await loop.connect_accepted_socket(lambda: receiver, theirs)
    await loop.connect_accepted_socket(lambda: sender, ours)
    await opened.wait()
    sender.send(Kind.RESULT, 1, PAYLOAD)
    for _ in range(9):  # turns of the loop
        await asyncio.sleep(0)
    sender.send(Kind.RESULT, 2, b"small")
    await whole.wait()
    assert came == [(2, b"small"), (1, PAYLOAD)]
    sender.close()
    receiver.close()
    await asyncio.gather(sender.ended.wait(), receiver.ended.wait())


@pytest.mark.parametrize(("move", "module"), [(by_frames, fetching), (by_socket, framing)])
def test_a_large_payload_takes_its_time_beside_small_answers_alone(
    move: Callable[[], Coroutine[Any, Any, None]], module: Any
) -> None:
    assert seconds(move, module, beside=False) == 0
    assert LEAST_S < seconds(move, module, beside=True) < 1.1 * len(PAYLOAD) / BYTES_S


async def test_a_connection_that_ends_sends_what_waits_for_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    pacing = Pacing()
    monkeypatch.setattr(framing, "PACING", pacing)
    loop, (ours, theirs) = asyncio.get_running_loop(), socket.socketpair()
    came: list[bytes] = []
    receiver = FrameStream(lambda _: None, lambda _, __, ___, payload: came.append(bytes(payload)), lambda _: None)
    sender = FrameStream(lambda _: None, lambda *_: None, lambda _: None)
    await loop.connect_accepted_socket(lambda: receiver, theirs)
    await loop.connect_accepted_socket(lambda: sender, ours)
    pacing.answered(1)
    pacing.take(1 << 40)
    sender.send(Kind.RESULT, 1, PAYLOAD)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    sender.close()
    await asyncio.wait_for(receiver.ended.wait(), 30)
    assert came == [PAYLOAD]


async def test_a_payload_store_is_written_and_read_a_turn_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns: list[int] = []

    class Noted(Pacing):
        async def turn(self, size: int) -> None:
            turns.append(size)

    monkeypatch.setattr(store, "PACING", Noted())
    payloads = PayloadStore(FolderStore(tmp_path, durable=False))
    key = "0" * 32
    await payloads.write(key, (PAYLOAD[:5], PAYLOAD[5:]))
    assert await payloads.read(key, len(PAYLOAD)) == PAYLOAD
    assert turns == [len(PAYLOAD)] * 2
