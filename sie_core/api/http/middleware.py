"""The ASGI middleware of every request: its id, admission, reply headers, log line and metrics."""

from __future__ import annotations

import logging
import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sie_core import __version__
from sie_core.api.http.browsers import Browsers
from sie_core.api.http.errors import error_response
from sie_core.api.http.gate import Gate
from sie_core.api.http.metrics import HttpMetrics
from sie_core.api.request import CLIENT, HEADERS, HELD, RequestHeaders
from sie_core.auth import Auth, credentials
from sie_core.callers import Callers
from sie_core.concurrency.pacing import LARGE_BYTES, PACING, PIECE_BYTES
from sie_core.contracts import InferenceError, Tracer
from sie_core.logs import ACCESS, RequestFields, current_request, request_fields

log = logging.getLogger("sie_core.http")
access_log = logging.getLogger(ACCESS)

PIECE: Final = 1_048_576
"""The most bytes of a body that the connection gets at once."""
_TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


@dataclass(slots=True)
class Exchange:
    """One request and its reply."""

    scope: Scope
    send: Send
    headers: list[tuple[bytes, bytes]]
    """Headers of every reply to it."""
    gate: Gate
    started: float = field(default_factory=time.monotonic)
    status: int | None = None
    """None until the reply begins."""
    size: int = 0
    error: str | None = None
    """The code of the error that was its reply."""

    async def reply(self, message: Message) -> None:
        """Send a message of the reply, with the headers of every reply."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message["headers"], *self.headers]
            if not self.gate.is_open:
                message["headers"].append((b"connection", b"close"))
        else:
            body = message.get("body", b"")
            self.size += len(body)
            most = PIECE_BYTES if self.size > LARGE_BYTES and PACING.gives_way else PIECE
            if len(body) > most:
                await self._send_pieces(memoryview(body))
                message = {**message, "body": b""}
        await self.send(message)

    async def _send_pieces(self, body: memoryview) -> None:
        """Send a large body as fast as the client reads it, and small answers leave room for it.

        Its request counts as in flight until then.
        """
        start = 0
        while start < len(body):
            piece = body[start : start + (PIECE_BYTES if PACING.gives_way else PIECE)]
            await PACING.turn(len(piece))
            await self.send({"type": "http.response.body", "body": piece, "more_body": True})
            start += len(piece)


class Shell(Protocol):
    """What every API has around its routes."""

    @property
    def gate(self) -> Gate:
        """Admits requests."""
        ...

    @property
    def browsers(self) -> Browsers:
        """Decides which web pages may call."""
        ...

    @property
    def auth(self) -> Auth:
        """Decides who may call."""
        ...

    @property
    def callers(self) -> Callers:
        """Names the client of a request."""
        ...

    @property
    def instance(self) -> str | None:
        """Return a random id of this process, which replies tell; None where they do not."""
        ...


class RequestMiddleware:
    """Wraps the application.

    Args:
        app: The application.
        api: The gate and what else is around the routes.
        metrics: Counts the requests.
        admitted: Whether a request passes the gate.
        refusal_of: Makes the reply to a request that failed before a route answered it.
        tracer: Chooses those of the admitted requests whose trace is recorded; None records none.
    """

    def __init__(
        self,
        app: ASGIApp,
        api: Shell,
        metrics: HttpMetrics,
        admitted: Callable[[Scope], bool],
        refusal_of: Callable[[InferenceError, Scope], Response] = error_response,
        tracer: Tracer | None = None,
    ) -> None:
        self._app = app
        self._api = api
        self._metrics = metrics
        self._admitted = admitted
        self._refusal_of = refusal_of
        self._tracer = tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._pass_on(scope, receive, send)
            return
        admitted = self._admitted(scope)
        given = scope[HEADERS] = RequestHeaders(scope["headers"])
        fields = _fields(given)
        started = time.monotonic()
        if self._tracer is not None and admitted:
            fields.begin(self._tracer, f"{scope['method']} {scope['route'].path}", started, given, queued=False)
        token = current_request.set(fields)
        exchange = Exchange(scope, send, self._headers(given, fields, admitted), self._api.gate, started)
        try:
            await self._answer(exchange, receive, given, admitted)
        finally:
            seconds = time.monotonic() - exchange.started
            self._record(scope, fields, admitted, exchange.status or 499, seconds, exchange.size)
            if fields.trace is not None:
                _end(fields, exchange, seconds)
            current_request.reset(token)

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a WebSocket on, unless a foreign page asks for it: browsers let any page read what a WebSocket sends."""
        try:
            if scope["type"] == "websocket":
                given = RequestHeaders(scope["headers"])
                self._api.browsers.check(given)
                self._api.auth.check(
                    scope["path"], credentials(given.getlist("authorization"), scope.get("subprotocols", ()))
                )
        except InferenceError as error:
            if "websocket.http.response" in scope.get("extensions", ()):
                await error_response(error, scope)(scope, receive, send)
            else:
                await send({"type": "websocket.close", "code": 1008})
        else:
            await self._app(scope, receive, send)

    async def _answer(self, exchange: Exchange, receive: Receive, given: RequestHeaders, admitted: bool) -> None:
        try:
            self._api.browsers.check(given)
            if exchange.scope["method"] == "OPTIONS" and (preflight := self._api.browsers.preflight(given)) is not None:
                await preflight(exchange.scope, receive, exchange.reply)
                return
            if self._api.auth.on:
                self._api.auth.check(exchange.scope["path"], given.getlist("authorization"))
            if not admitted:
                await self._app(exchange.scope, receive, exchange.reply)
                return
            peer = exchange.scope.get("client")
            client = exchange.scope[CLIENT] = self._api.callers.client(peer and peer[0], given)
            self._api.gate.enter(client)
            try:
                await self._app(exchange.scope, receive, exchange.reply)
            finally:
                held = exchange.scope.get(HELD, 0)
                PACING.answered(held + exchange.size)
                self._api.gate.leave(held, client)
        except InferenceError as error:
            await self._refuse(exchange, receive, error)
        except MemoryError:
            if exchange.status is not None:
                raise
            message = "The server has no memory for this request now."
            await self._refuse(exchange, receive, InferenceError("RESOURCE_EXHAUSTED", message))
        except Exception:
            log.exception("%s %s failed", exchange.scope["method"], _path(exchange.scope))
            if exchange.status is not None:
                raise
            message = "The server failed on this request; its log says why, under the id in X-SIE-Request-ID."
            await self._refuse(exchange, receive, InferenceError("INTERNAL_ERROR", message))

    async def _refuse(self, exchange: Exchange, receive: Receive, error: InferenceError) -> None:
        exchange.error = error.code
        self._metrics.failed(error.code, request_fields().request_id)
        response = self._refusal_of(error, exchange.scope)
        await response(exchange.scope, receive, exchange.reply)

    def _headers(self, given: RequestHeaders, fields: RequestFields, admitted: bool) -> list[tuple[bytes, bytes]]:
        headers = [(b"x-sie-request-id", fields.request_id.encode()), *self._api.browsers.reply_headers(given)]
        if not given.get("x-sie-sdk-version", "").startswith("0."):
            # Clients of version 0 speak this protocol, but take a server of another major version for a mistake.
            headers.append((b"x-sie-server-version", __version__.encode()))
        if fields.trace_id:
            headers.append((b"x-trace-id", fields.trace_id.encode()))
        if admitted and self._api.instance is not None:
            headers += [(b"x-sie-served-by", b"local"), (b"x-sie-runtime-instance", self._api.instance.encode())]
        return headers

    def _record(
        self, scope: Scope, fields: RequestFields, admitted: bool, status: int, seconds: float, size: int
    ) -> None:
        method = scope["method"] if scope["method"] in _METHODS else "OTHER"
        route = getattr(scope.get("route"), "path", "unmatched")
        recorded_as = None if fields.trace is None else fields.trace_id
        self._metrics.record(route, method, status, seconds, size, recorded_as)
        if fields.model is None:
            fields.model = scope.get("path_params", {}).get("model")
        level = logging.INFO if admitted or status >= 500 else logging.DEBUG
        if access_log.isEnabledFor(level):
            extra = {"latency_ms": round(seconds * 1000, 2)}
            access_log.log(level, "%s %s %d", method, _path(scope), status, extra=extra)


def _fields(headers: RequestHeaders) -> RequestFields:
    given = headers.get("x-sie-request-id", "")
    if not (0 < len(given) <= 256 and given.isascii() and given.isprintable()):
        given = f"{random.getrandbits(128):032x}"  # need not be hard to guess, and the kernel's numbers cost more
    trace = _TRACEPARENT.fullmatch(headers.get("traceparent", ""))
    return RequestFields(given, trace.group(1) if trace else None)


def _end(fields: RequestFields, exchange: Exchange, seconds: float) -> None:
    """Record the request, in the terms of OpenTelemetry's semantic conventions."""
    assert fields.trace is not None
    facts = {
        "http.request.method": exchange.scope["method"],
        "http.route": exchange.scope["route"].path,
        "http.response.status_code": exchange.status or 499,
        "gen_ai.request.model": fields.model,
        "request_id": fields.request_id,
    }
    fields.trace.end(exchange.started + seconds, exchange.error, **facts)


def _path(scope: Scope) -> str:
    """Write the path for the log, escaped so that it cannot forge a line."""
    path: str = scope["path"][:200]
    return path if path.isprintable() else repr(path)
