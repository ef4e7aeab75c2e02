"""The response whose body is written in pieces, as fast as the client takes them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from sie_core.api.body.pieces import Content, Pieces
from sie_core.api.http.offload import LARGE, BodyThreads


def response(content: Content, headers: Mapping[str, str], media_type: str, threads: BodyThreads) -> Response:
    """Make the response with a body that is whole or in pieces."""
    if isinstance(content, bytes):
        return Response(content, 200, headers, media_type)
    return StreamedResponse(content, headers, media_type, threads)


class StreamedResponse(Response):
    """A response of which one piece at a time is in memory.

    A body whose length is known before it is written has `Content-Length`. Any other is sent in chunks; for a client of
    HTTP/1.0, which reads none, it is written whole.

    Args:
        body: The pieces.
        headers: Of the reply.
        media_type: Of the body.
        threads: Where pieces are written, so that the event loop answers others meanwhile.
    """

    def __init__(self, body: Pieces, headers: Mapping[str, str], media_type: str, threads: BodyThreads) -> None:
        super().__init__(None, 200, headers, media_type)
        self._pieces, self._threads = iter(body.parts), threads
        del self.headers["content-length"]
        if body.length is not None:
            self.headers["content-length"] = str(body.length)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the reply; stop writing it where the client leaves."""
        if "content-length" not in self.headers and scope.get("http_version") == "1.0":
            whole = await self._threads.run(LARGE, lambda: b"".join(self._pieces))
            await Response(whole, 200, self.headers)(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        gone = asyncio.ensure_future(receive())
        try:
            while (piece := await self._threads.run(LARGE, self._next)) is not None and not gone.done():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        finally:
            gone.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _next(self) -> bytes | None:
        return next(self._pieces, None)
