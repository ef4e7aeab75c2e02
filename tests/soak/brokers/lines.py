"""Lines between brokers that can be cut: connections stay and nothing passes, as where a network drops packets."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

HOST = "127.0.0.1"
PIECE = 1 << 16


class Lines:
    """TCP proxies on a thread of their own, one for each way from a broker to another.

    Args:
        ports: Those that brokers listen on for one another.
    """

    def __init__(self, ports: Sequence[int]) -> None:
        self._to = ports
        self._open: dict[tuple[int, int], asyncio.Event] = {}
        self._carrying: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._at: dict[tuple[int, int], int] = {}

    def port(self, one: int, other: int) -> int:
        """Return where the first broker finds the second."""
        return self._at[one, other]

    def cut(self, number: int) -> None:
        """Let nothing pass between a broker and the others."""
        self._set(number, opened=False)

    def mend(self, number: int) -> None:
        """Let everything pass again, what was held up first."""
        self._set(number, opened=True)

    @contextmanager
    def running(self) -> Iterator[Lines]:
        """Carry until the end of the block."""
        thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)
        try:
            yield self
        finally:
            asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join(10)
            self._loop.close()

    def _set(self, number: int, *, opened: bool) -> None:
        def apply() -> None:
            for way, passing in self._open.items():
                if number in way:
                    passing.set() if opened else passing.clear()

        self._loop.call_soon_threadsafe(apply)

    async def _listen(self) -> None:
        for one in range(len(self._to)):
            for other in range(len(self._to)):
                if one != other:
                    self._at[one, other] = await self._line((one, other))

    async def _line(self, way: tuple[int, int]) -> int:
        passing = self._open[way] = asyncio.Event()
        passing.set()

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                there_reader, there_writer = await asyncio.open_connection(HOST, self._to[way[1]])
            except OSError:
                writer.close()
                return
            for source, sink in ((reader, there_writer), (there_reader, writer)):
                task = self._loop.create_task(_carry(source, sink, passing))
                self._carrying.add(task)
                task.add_done_callback(self._carrying.discard)

        server = await asyncio.start_server(accept, HOST, 0)
        return int(server.sockets[0].getsockname()[1])

    async def _end(self) -> None:
        for task in self._carrying:
            task.cancel()
        await asyncio.gather(*self._carrying, return_exceptions=True)


async def _carry(source: asyncio.StreamReader, sink: asyncio.StreamWriter, passing: asyncio.Event) -> None:
    """Pass on what comes, both ends' hanging up included, while the line is open."""
    try:
        with contextlib.suppress(OSError):
            while data := await source.read(PIECE):
                await passing.wait()
                sink.write(data)
                await sink.drain()
        await passing.wait()
    finally:
        sink.close()
