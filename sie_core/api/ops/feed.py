"""WebSockets that send what is to be seen of a program again and again; clients send nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from sie_core.api.http.errors import error_response
from sie_core.auth import Auth, credentials
from sie_core.contracts import InferenceError

MOST_WATCHERS: Final = 256
"""Clients that may watch one feed at once."""
TRY_AGAIN_LATER: Final = 1013
"""The close code of RFC 6455's registry."""
POLICY_VIOLATION: Final = 1008
"""Its close code for a watcher that may not watch."""
PROTOCOL: Final = "sie.status"
"""The WebSocket protocol of a feed, for clients that must offer one."""
MOST_WAIT_S: Final = 10.0
"""Seconds in which a watcher takes a message; one that does not is sent no more."""


def feed_route(path: str, period_s: float, describe: Callable[[], Mapping[str, Any]], auth: Auth) -> WebSocketRoute:
    """Make the route of a feed.

    Args:
        path: Its path.
        period_s: Between two messages.
        describe: Makes a message.
        auth: Says who may watch, where nothing around the route has asked before.
    """
    feed = _Feed(period_s, describe)

    async def watch(websocket: WebSocket) -> None:
        try:
            offered = websocket.scope.get("subprotocols", ())
            auth.check(path, credentials(websocket.headers.getlist("authorization"), offered))
        except InferenceError as error:
            if "websocket.http.response" in websocket.scope.get("extensions", ()):
                await websocket.send_denial_response(error_response(error, websocket.scope))
            else:
                await websocket.close(POLICY_VIOLATION)
            return
        await feed.serve(websocket)

    return WebSocketRoute(path, watch)


class _Feed:
    """Its watchers; a message is made once for all that are sent it at the same time."""

    def __init__(self, period_s: float, describe: Callable[[], Mapping[str, Any]]) -> None:
        self._period_s, self._describe = period_s, describe
        self._watchers = 0
        self._text = ""
        self._made_at = -period_s

    async def serve(self, websocket: WebSocket) -> None:
        """Send until the client disconnects or the server stops."""
        # A browser wants one of the protocols that its page offered, and the other ones hold its token.
        await websocket.accept(PROTOCOL if PROTOCOL in websocket.scope.get("subprotocols", ()) else None)
        if self._watchers >= MOST_WATCHERS:
            await websocket.close(TRY_AGAIN_LATER, f"{MOST_WATCHERS} clients watch already")
            return
        self._watchers += 1
        gone = asyncio.create_task(_until_gone(websocket))
        try:
            while not gone.done() and await _is_sent(websocket, self._message()):
                await asyncio.wait([gone], timeout=self._period_s)
        finally:
            self._watchers -= 1
            gone.cancel()

    def _message(self) -> str:
        now = time.monotonic()
        if now - self._made_at >= self._period_s / 2:
            self._text, self._made_at = orjson.dumps(self._describe(), default=list).decode(), now
        return self._text


async def _is_sent(websocket: WebSocket, text: str) -> bool:
    """Send a message; False where the client leaves just then: uvloop raises `RuntimeError` after its last bytes."""
    try:
        async with asyncio.timeout(MOST_WAIT_S):
            await websocket.send_text(text)
    except (WebSocketDisconnect, RuntimeError, TimeoutError):
        return False
    return True


async def _until_gone(websocket: WebSocket) -> None:
    """Ignore the messages of the client."""
    while (await websocket.receive())["type"] != "websocket.disconnect":
        pass
