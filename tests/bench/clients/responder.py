"""A server that computes nothing: it answers every request with the same bytes, to measure the load generator alone.

`python -m tests.bench.clients.responder BYTES` prints its port.
"""

from __future__ import annotations

import asyncio
import sys
from typing import cast

import httptools
import uvloop


class Responder(asyncio.Protocol):
    """Answers as soon as a request is complete."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._parser = httptools.HttpRequestParser(self)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        self._transport.write(self._answer)


async def serve(size: int) -> None:
    """Answer with a body of `size` bytes until the parent closes stdin."""
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {size}\r\n\r\n"
    answer = head.encode() + b"x" * size
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Responder(answer), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
