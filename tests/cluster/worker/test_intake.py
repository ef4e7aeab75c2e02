"""What an adapter process computed reaches its sidecar, also where it ends."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from sie_cluster.ipc.framing import FrameStream, Kind
from sie_cluster.ipc.listening import listen_on
from sie_cluster.messages.requests import pack_item, pack_shared
from sie_cluster.messages.work import WorkHead, decode_result, encode_work
from sie_cluster.worker.answering import WorkerBackend
from sie_cluster.worker.intake import Intake

from sie_core.contracts import InferenceReply, InferenceRequest, Item, Timing, Usage
from sie_core.serving.http_server import run_loop

LARGE = bytes(range(1, 201)) * 80_000
BOUND_S = 30.0


def one_text() -> bytes:
    head = WorkHead("r", 0, 1, 1, "encode", "m", b"k" * 16, 0, 1, 1, "_INBOX.gateway.1")
    item = Item(text="a text")
    return encode_work(head, pack_shared(InferenceRequest("m", "encode", [item], request_id="r")), [pack_item(item)])


class Backend:
    """Answers with sixteen megabytes."""

    async def infer(self, request: InferenceRequest) -> InferenceReply:
        return InferenceReply([LARGE], Timing(), Usage(), truncated=0)


@dataclass
class Frame:
    kind: Kind
    payload: bytes


async def test_a_drain_lasts_until_a_slow_sidecar_has_its_results(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    intake = Intake(cast("WorkerBackend", Backend()), lambda: b"", lambda: (0.0, True))
    await intake.listen(listen_on(tmp_path / "ipc"))
    came: list[Frame] = []
    sidecar = FrameStream(lambda _: None, lambda _, kind, __, frame: came.append(Frame(kind, frame)), lambda _: None)
    await loop.create_unix_connection(lambda: sidecar, str(tmp_path / "ipc"))
    sidecar.send(Kind.WORK, 1, one_text())
    sidecar.send(Kind.DRAIN, 0)
    async with asyncio.timeout(BOUND_S):
        while not intake.in_flight:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0)
        sidecar.transport.pause_reading()
        idle = loop.create_task(intake.idle(BOUND_S))
        while intake.in_flight:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0)
        loop.call_soon(sidecar.transport.resume_reading)
        assert await idle
        for stream in list(intake._streams):
            stream.abort()  # as the end of the process does
        await sidecar.ended.wait()
    _, (item,) = decode_result(next(frame.payload for frame in came if frame.kind is Kind.RESULT))
    assert item == LARGE


def test_sidecars_connect_again_after_garbage_was_collected(tmp_path: Path) -> None:
    """On the event loop that programs run on, which closes what nobody refers to."""

    async def connect() -> None:
        intake = Intake(cast("WorkerBackend", Backend()), lambda: b"", lambda: (0.0, True))
        await intake.listen(listen_on(tmp_path / "ipc"))
        gc.collect()
        loop, told = asyncio.get_running_loop(), asyncio.Event()
        for _ in range(2):
            sidecar = FrameStream(lambda _: None, lambda *_: told.set(), lambda _: None)
            async with asyncio.timeout(BOUND_S):
                await loop.create_unix_connection(lambda sidecar=sidecar: sidecar, str(tmp_path / "ipc"))
                await told.wait()
            sidecar.abort()

    run_loop(connect())
