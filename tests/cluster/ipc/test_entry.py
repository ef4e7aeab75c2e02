"""Sidecars can connect as long as the adapter process lives, and it says so where none does."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from sie_cluster.ipc.entry import ALONE_S, Entry
from sie_cluster.ipc.listening import listen_on

from sie_core.serving.http_server import run_loop
from sie_core.serving.listening import ListenError

BOUND_S = 30.0


class Connections(asyncio.Protocol):
    """Those of sidecars; counts them."""

    def __init__(self, there: set[Connections]) -> None:
        self._there = there

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._there.add(self)
        transport.write(b"!")

    def connection_lost(self, _: Exception | None) -> None:
        self._there.discard(self)


class Entered:
    """An entry with a clock that stands still, and its sidecars."""

    def __init__(self, path: Path) -> None:
        self.path, self.now, self.there = path, 0.0, set[Connections]()
        self.entry = Entry(listen_on(path), lambda: Connections(self.there), lambda: len(self.there), lambda: self.now)

    async def connect(self) -> asyncio.StreamWriter:
        async with asyncio.timeout(BOUND_S):
            reader, writer = await asyncio.open_unix_connection(str(self.path))
            assert await reader.readexactly(1) == b"!"
        return writer

    async def leave(self, sidecar: asyncio.StreamWriter) -> None:
        sidecar.close()
        async with asyncio.timeout(BOUND_S):
            while self.there:  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0)


def on_the_loop_of_programs(path: Path, check: Callable[[Entered], Awaitable[None]]) -> None:
    async def run() -> None:
        entered = Entered(path)
        await entered.entry.listen()
        await check(entered)

    run_loop(run())


def test_a_socket_that_was_removed_is_made_anew_once_there_is_no_sidecar(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def check(entered: Entered) -> None:
        sidecar, path = await entered.connect(), entered.path
        path.unlink()
        await entered.entry.look()
        assert not path.exists(), "whoever is connected is not disturbed"
        await entered.leave(sidecar)
        await entered.entry.look()
        assert f"the socket {path} was removed and is made anew" in caplog.text
        await entered.leave(await entered.connect())
        file = path.stat().st_ino
        await entered.entry.look()
        assert path.stat().st_ino == file

    on_the_loop_of_programs(tmp_path / "ipc", check)


def test_a_socket_that_another_process_made_in_its_place_is_left_to_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def check(entered: Entered) -> None:
        entered.now += ALONE_S
        await entered.entry.look()
        assert "not ready" in caplog.text
        entered.path.unlink()
        with listen_on(entered.path):
            await entered.entry.look()
            await entered.entry.look()
            assert caplog.text.count("cannot be made anew") == 1
            assert "another adapter process does" in caplog.text
        await entered.entry.look()  # that one has ended
        await entered.leave(await entered.connect())

    on_the_loop_of_programs(tmp_path / "ipc", check)


def test_a_process_without_a_sidecar_says_so_after_a_while_and_until_there_is_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def check(entered: Entered) -> None:
        entry = entered.entry
        entered.now += ALONE_S - 1
        await entry.look()
        assert entry.problem is None
        entered.now += 1
        await entry.look()
        await entry.look()
        problem = f"no sidecar has been connected to {entered.path} for 10 s"
        assert entry.problem == problem
        assert caplog.text.count(problem) == 1
        sidecar = await entered.connect()
        assert entry.problem is None
        await entry.look()
        await entered.leave(sidecar)
        assert entry.problem is None
        await entry.look()
        entered.now += ALONE_S
        assert entry.problem == problem

    on_the_loop_of_programs(tmp_path / "ipc", check)


def test_a_process_that_takes_no_more_connections_just_now_is_waited_for_by_nobody(tmp_path: Path) -> None:
    path, waiting = tmp_path / "ipc", []
    with socket.socket(socket.AF_UNIX) as busy:
        busy.bind(str(path))
        busy.listen(0)
        for _ in range(2):  # the system takes so many until the first is accepted
            waiting.append(socket.socket(socket.AF_UNIX))
            waiting[-1].setblocking(False)
            waiting[-1].connect_ex(str(path))
        with pytest.raises(ListenError, match="another adapter process does"):
            listen_on(path)
    for each in waiting:
        each.close()
