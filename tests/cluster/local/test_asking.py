"""Whatever a gateway answers in the middle of its end, who asks goes on; and no proxy is asked in its place."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from sie_cluster.local import up
from sie_cluster.local.programs import Programs
from sie_cluster.local.table import Table, ask
from sie_cluster.local.up import workers_up
from sie_cluster.programs.processes import Program

CUT = {
    "nothing": b"",
    "no HTTP": b"what is this\r\n\r\n",
    "half of a head": b"HTTP/1.1 200 OK\r\nContent-Le",
    "half of a body": b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf",
    "half of a chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n40\r\nhalf",
    "refused": b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n",
}


async def asked(answer: bytes, workers: tuple[Program, ...] = ()) -> tuple[bytes | None, int, list[str]]:
    """What is made of an answer, by who counts workers, and by the table."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    down = Program("down", [], {})
    bundles = {worker.name: "default" for worker in workers}
    table = Table(Programs((down,), down, down, workers, bundles, lambda: asyncio.sleep(0)), url)
    told = await asyncio.to_thread(ask, url, 10.0)
    up = await asyncio.to_thread(workers_up, url)
    lines = await asyncio.to_thread(table.lines)
    server.close()
    return told, up, lines


@pytest.mark.parametrize("cut", CUT)
async def test_an_answer_that_does_not_come_whole_is_none(cut: str) -> None:
    told, workers, lines = await asked(CUT[cut])
    assert (told, workers) == (None, -1)
    assert lines[-1] == "the gateway does not answer"


async def test_the_table_tells_which_workers_take_no_work() -> None:
    body = b'{"workers": [{"name": "w1", "healthy": false}, {"name": "w2", "healthy": true}]}'
    sleeping = [sys.executable, "-c", "import time; time.sleep(600)"]
    workers = tuple(Program(name, sleeping, {}) for name in ("w1", "w2", "w3"))
    running = [asyncio.create_task(worker.run()) for worker in workers]
    await asyncio.gather(*(worker.tried.wait() for worker in workers))
    _, _, lines = await asked(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body), workers)
    told = {line.split()[0]: line.partition("  default")[2] for line in lines if line.startswith("w")}
    assert told == {"w1": ", takes no work", "w2": "", "w3": ", takes no work"}
    for task in running:
        task.cancel()
    await asyncio.wait(running)


async def test_an_answer_that_nobody_foresaw_ends_no_cluster(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    looks, asked = 0, asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal looks
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]")
        writer.close()
        looks += 1
        if looks == 3:  # of the table, each second
            asked.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url, down = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", Program("down", [], {})
    table = Table(Programs((down,), down, down, (), {}, lambda: asyncio.sleep(0)), url)
    shown: list[list[str]] = []
    async with asyncio.timeout(60):
        await up._watch(table, asked, shown.append, tmp_path)
    server.close()
    assert caplog.text.count("the cluster could not be looked at; it goes on") >= 3
    assert shown == []


async def test_a_proxy_of_the_environment_is_passed_by(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    told, _, _ = await asked(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    assert told == b"ok"
