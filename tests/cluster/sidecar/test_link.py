"""The connections of a sidecar to its adapter process."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest
from sie_cluster.ipc.framing import FrameStream, Kind
from sie_cluster.ipc.listening import listen_on
from sie_cluster.messages.status import WorkerStatus, encode_status
from sie_cluster.sidecar.adapter import link
from sie_cluster.sidecar.adapter.link import AdapterListener, Link


class Deaf:
    """A listener that does nothing."""

    def adapter_connected(self) -> None: ...

    def adapter_up(self) -> None: ...

    def adapter_down(self, *, lost: bool) -> None: ...

    def adapter_answered(self, number: int, frame: bytes) -> None: ...

    def adapter_loads(self, number: int, *, waits: bool) -> None: ...

    def adapter_queued(self, received: int, batches: float) -> None: ...

    def adapter_configured(self) -> None: ...

    def adapter_told(self) -> None: ...


def link_to(path: Path, listener: AdapterListener, ping_s: float) -> Link:
    return Link("w1", path, listener, connections=1, ping_s=ping_s, missed_pings=3.0, brings_configs=False)


async def test_an_adapter_process_that_nobody_reaches_is_told_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    told = asyncio.Event()

    class Told(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.set()

    monkeypatch.setattr(link, "SILENT_S", 0.01)
    monkeypatch.setattr(link, "AGAIN_S", 0.01)
    handler = Told()
    logging.getLogger(link.__name__).addHandler(handler)
    path = tmp_path / "nobody.sock"
    running = asyncio.create_task(link_to(path, Deaf(), 1.0).run())
    try:
        async with asyncio.timeout(30):
            await told.wait()
    finally:
        running.cancel()
        logging.getLogger(link.__name__).removeHandler(handler)
    assert f"no connection to the adapter process at {path}" in caplog.text


async def test_a_process_that_was_not_ready_and_then_answers_no_more_is_told_of_both_times(tmp_path: Path) -> None:
    """What it has goes to others only once it is silent."""
    streams: list[FrameStream] = []
    answers: list[bool] = []
    silent = asyncio.Event()

    class Listener(Deaf):
        def adapter_down(self, *, lost: bool) -> None:
            answers.append(made.answers)
            if not made.answers:
                silent.set()

    def frame(stream: FrameStream, kind: Kind, number: int, payload: bytes) -> None:
        """Never a pong."""

    def opened(stream: FrameStream) -> None:
        streams.append(stream)
        stream.send(Kind.STATUS, 0, encode_status(WorkerStatus(True, None, [])))
        stream.send(Kind.STATUS, 0, encode_status(WorkerStatus(False, "broken", [])))

    server = await asyncio.get_running_loop().create_unix_server(
        lambda: FrameStream(opened, frame, lambda _: None), sock=listen_on(tmp_path / "ipc")
    )
    made = link_to(tmp_path / "ipc", Listener(), 0.01)
    running = asyncio.create_task(made.run())
    try:
        async with asyncio.timeout(30):
            await silent.wait()
        assert answers == [True, False]
    finally:
        running.cancel()
        server.close()
