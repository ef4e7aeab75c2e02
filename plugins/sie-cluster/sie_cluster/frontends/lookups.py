"""Passes on what asks for no inference to the process with the device: requests one by one, WebSockets as they are."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final, cast

import httpx
from starlette.types import Receive, Scope, Send

from sie_core.api import error_response
from sie_core.contracts import InferenceError

ANSWER_S: Final = 60.0
"""How long a lookup may take: a description of thousands of models, behind others."""
_OF_A_CONNECTION: Final = frozenset(
    {b"connection", b"keep-alive", b"transfer-encoding", b"upgrade", b"te", b"trailer", b"expect", b"content-length"}
)
_MADE_ANEW: Final = frozenset({b"date", b"transfer-encoding"})
"""Headers of a reply that the own server sets."""


class Lookups:
    """An ASGI application that asks another server over a Unix socket. Bodies of requests are not passed on.

    Args:
        path: The socket.
    """

    def __init__(self, path: Path) -> None:
        self._transport = httpx.AsyncHTTPTransport(uds=str(path))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        query = scope["query_string"]
        asked = httpx.Request(
            scope["method"],
            "http://device/",
            headers=[each for each in scope["headers"] if each[0] not in _OF_A_CONNECTION],
            extensions={
                "target": scope["raw_path"] + (b"?" + query if query else b""),
                "timeout": httpx.Timeout(ANSWER_S).as_dict(),
            },
        )
        begun = False
        try:
            reply = await self._transport.handle_async_request(asked)
            try:
                headers = [(name.lower(), value) for name, value in reply.headers.raw]
                kept = [each for each in headers if each[0] not in _MADE_ANEW]
                await send({"type": "http.response.start", "status": reply.status_code, "headers": kept})
                begun = True
                async for part in reply.aiter_raw():
                    await send({"type": "http.response.body", "body": part, "more_body": True})
            finally:
                await reply.aclose()
            await send({"type": "http.response.body", "body": b""})
        except httpx.HTTPError:
            if begun:
                raise
            told = "The process that runs the models does not answer; retry shortly."
            await error_response(InferenceError("QUEUE_UNAVAILABLE", told), scope)(scope, receive, send)


class Tunnel(asyncio.Protocol):
    """Both directions of a WebSocket's connection, in the place of uvicorn's protocol for these.

    Args:
        path: The Unix socket of the server that speaks it.
        server_state: Uvicorn's, which closes connections with the server.
        others: What uvicorn's protocols are given too.
    """

    def __init__(self, path: Path, *, server_state: Any, **others: Any) -> None:
        self._path, self._connections = path, server_state.connections
        self._client: asyncio.Transport | None = None
        self._server: asyncio.Transport | None = None
        self._early = bytearray()
        """What came before the other side was connected: the request."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connect to the other side."""
        self._client = cast("asyncio.Transport", transport)
        self._connections.add(self)
        self._connecting = asyncio.get_running_loop().create_task(self._connect())

    def data_received(self, data: bytes) -> None:
        """Pass on what the client sends."""
        if self._server is None:
            self._early += data
        else:
            self._server.write(data)

    def connection_lost(self, error: Exception | None) -> None:
        """End the other side too."""
        self._connections.discard(self)
        self._connecting.cancel()
        if self._server is not None:
            self._server.abort()

    def pause_writing(self) -> None:
        """Read no more of the other side until the client has taken what there is."""
        if self._server is not None:
            self._server.pause_reading()

    def resume_writing(self) -> None:
        """Read on."""
        if self._server is not None:
            self._server.resume_reading()

    def shutdown(self) -> None:
        """End with the server."""
        if self._client is not None:
            self._client.close()

    async def _connect(self) -> None:
        assert self._client is not None
        try:
            server, _ = await asyncio.get_running_loop().create_unix_connection(
                lambda: _Back(cast("asyncio.Transport", self._client)), str(self._path)
            )
        except OSError:
            self._client.close()
            return
        self._server = server
        server.write(bytes(self._early))


class _Back(asyncio.Protocol):
    """The direction back."""

    def __init__(self, client: asyncio.Transport) -> None:
        self._client = client

    def data_received(self, data: bytes) -> None:
        self._client.write(data)

    def connection_lost(self, error: Exception | None) -> None:
        self._client.close()
