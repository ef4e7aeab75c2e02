"""An ASGI application under uvicorn, as every program of SIE serves one."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator
from functools import partial
from typing import Any

import uvicorn
from starlette.responses import Response
from starlette.types import ASGIApp

from sie_core.contracts import InferenceError
from sie_core.serving.bounds import CLOSE_S, KEEP_ALIVE_S, MAX_MESSAGE_BYTES
from sie_core.serving.connections import Connection
from sie_core.serving.listening import BACKLOG

DATE_S = 1.0
"""How old the date of a reply may be."""


def run_loop(main: Coroutine[Any, Any, None]) -> None:
    """Run `main` on a new event loop of the kind that uvicorn takes."""
    factory = uvicorn.Config("", log_config=None).get_loop_factory()
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main)


def _open_socket(*arguments: Any, **options: Any) -> asyncio.Protocol:
    """Make the protocol of a WebSocket, whose library is imported for the first one."""
    from uvicorn.protocols.websockets.wsproto_impl import WSProtocol

    return WSProtocol(*arguments, **options)


class HttpServer(uvicorn.Server):
    """Uvicorn without its signal handlers; `Drain` takes the signals.

    Args:
        app: The application.
        refusal: Makes the answer to bytes that cannot be read as a request.
        sockets: The paths that speak WebSocket.
        keep_alive_s: How long an idle connection is kept.
        open_socket: Makes the protocol of a WebSocket, as uvicorn's `ws`.
    """

    def __init__(
        self,
        app: ASGIApp,
        refusal: Callable[[InferenceError], Response],
        sockets: Collection[bytes] = (),
        keep_alive_s: int = KEEP_ALIVE_S,
        open_socket: Callable[..., asyncio.Protocol] = _open_socket,
    ) -> None:
        connection = partial(Connection, refusal=refusal, sockets=sockets)
        config = uvicorn.Config(
            app,
            http=connection,  # type: ignore[arg-type]
            ws=open_socket if sockets else "none",  # type: ignore[arg-type]
            ws_max_size=MAX_MESSAGE_BYTES,
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            backlog=BACKLOG,
            timeout_keep_alive=keep_alive_s,
            timeout_graceful_shutdown=CLOSE_S,
        )
        super().__init__(config)
        self._listening, self._stopping = asyncio.Event(), asyncio.Event()

    async def serve_on(self, listener: socket.socket, start: Callable[[], Awaitable[None]]) -> None:
        """Serve until `stop`; meanwhile do `start`, which is cancelled where it is still at work then.

        Requests are answered while `start` is at work, so that probes see the program start.

        Raises:
            Whatever `start` raises, which stops the server.
        """
        starting = asyncio.create_task(self._start(start))
        try:
            await self.serve(sockets=[listener])
            if starting.done():
                starting.result()
        finally:
            starting.cancel()

    async def _start(self, start: Callable[[], Awaitable[None]]) -> None:
        try:
            await self._listening.wait()
            await start()
        except Exception:
            self.stop()
            raise

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen."""
        await super().startup(sockets)
        self._listening.set()

    def stop(self) -> None:
        """Close the listening socket and the connections, and return from `serve_on`."""
        self.should_exit = True
        self._stopping.set()

    async def main_loop(self) -> None:
        """Renew the date of replies each second until `stop`; uvicorn itself looks ten times a second."""
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DATE_S):
                    await self._stopping.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals to `Drain`."""
        yield
