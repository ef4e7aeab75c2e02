"""Deltas that are cut on their way: followers find what they missed by the epoch, within their poll."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pydantic import SecretStr

from tests.cluster.configs.conftest import connected, following, settings_of
from tests.cluster.configs.registries import text_of
from tests.cluster.configs.service import SmallService
from tests.nats.conftest import Broker


@dataclass
class Line:
    """A TCP proxy before a broker; it may carry nothing, or hang up."""

    port: int = 0
    open: asyncio.Event = field(default_factory=asyncio.Event)
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                await self.open.wait()
                writer.write(data)
                await writer.drain()
        writer.close()

    def hang_up(self) -> None:
        """End every connection."""
        for writer in self.writers:
            writer.transport.abort()


@asynccontextmanager
async def line_to(port: int) -> AsyncIterator[Line]:
    """Run a proxy until the end of the block."""
    line = Line()
    line.open.set()
    carrying: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", port)
        line.writers += (writer, there_writer)
        carrying.update(
            (
                asyncio.create_task(line.carry(reader, there_writer)),
                asyncio.create_task(line.carry(there_reader, writer)),
            )
        )

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    line.port = server.sockets[0].getsockname()[1]
    try:
        yield line
    finally:
        line.open.set()
        line.hang_up()
        server.close()
        await asyncio.gather(*carrying, return_exceptions=True)


@pytest.mark.parametrize("hangs_up", [False, True], ids=["nothing comes", "hung up"])
async def test_what_is_told_on_a_cut_line_is_followed_within_the_poll_and_deltas_count_again_afterwards(
    service: SmallService, url: str, tmp_path: Path, hangs_up: bool
) -> None:
    broker = Broker(tmp_path)
    broker.start()
    try:
        direct = settings_of(url, nats_url=SecretStr(broker.url), plugins=())
        async with line_to(broker.port) as line, connected(direct) as teller:
            far = direct.model_copy(
                update={
                    "nats_url": SecretStr(f"nats://127.0.0.1:{line.port}"),
                    "worker_config_poll_interval_ms": 300,
                }
            )
            async with connected(far) as transport, following(far, transport) as one:
                await one.until(lambda: one.epoch == 5)
                line.open.clear()
                if hangs_up:
                    line.hang_up()
                await service.tell(teller, "org/new", text_of("org/new"))
                await one.until(lambda: one.epoch == 6)
                assert (one.count("deltas", "applied"), "org/new" in one.told[-1].routes) == (0, True)
                assert one.told[-1].config_hashes == service.registry.config_hashes
                line.open.set()
                await one.until(lambda: transport.state == "connected")
                await service.tell(teller, "org/new", None)
                await one.until(lambda: one.epoch == 7)
                assert "org/new" not in one.told[-1].routes
    finally:
        broker.kill()
