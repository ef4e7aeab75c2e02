"""One HTTP connection: uvicorn's, with bounds on what a client may have the server hold, and errors in the API's shape.

It must not know routes. Bodies are bounded by who reads them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container
from typing import Any

from starlette.responses import Response
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from sie_core.contracts import InferenceError
from sie_core.serving.bounds import MAX_HEADERS_BYTES, MAX_HEADERS_S, MAX_PIPELINED, MAX_STALL_S
from sie_core.serving.parsing import WishlessParser


class Connection(HttpToolsProtocol):
    """One connection.

    Args:
        refusal: Makes the answer to what is no request that can be read.
        sockets: Paths on which a wish for WebSocket is granted; every other wish for a protocol is passed over.
        arguments: Of uvicorn.
        options: Of uvicorn.
    """

    def __init__(
        self,
        *arguments: Any,
        refusal: Callable[[InferenceError], Response],
        sockets: Container[bytes] = (),
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        self.parser: WishlessParser | None = WishlessParser(self, self._head_without_wish)  # type: ignore[assignment]
        self._make_refusal = refusal
        self._sockets = sockets
        self._running: RequestResponseCycle | None = None
        """The request that is being answered; `cycle` is the last that came."""
        self._unreadable = False
        """Whether what came last is no request: nothing is read any more, and that is said after the answers due."""
        self._head: int | None = None
        """Bytes of the headers that are coming, but for those that came with their first; None where none are."""
        self._refusal: InferenceError | None = None
        self._head_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Close a connection that nothing is sent on, like one that is idle between requests."""
        super().connection_made(transport)
        self.flow: _Flow = _Flow(transport)
        self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """Let everything go that waited for this connection."""
        self._stop(self._head_timer, self._stall_timer)
        self.pipeline.clear()
        if self._running is not None:
            _abandon(self._running)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Refuse headers that do not end; read nothing behind what is no request."""
        if self._unreadable:
            return
        if self._head is not None:
            self._head += len(data)
        super().data_received(data)
        if self._head is not None and self._head_timer is None:
            self._head_timer = self.loop.call_later(MAX_HEADERS_S, self._headers_overdue)
        elif self._is_idle() and self.timeout_keep_alive_task is None:
            self._await_request()
        if (self._head or 0) > MAX_HEADERS_BYTES:
            self._refuse(_too_large())

    def on_message_begin(self) -> None:
        """Begin to count."""
        super().on_message_begin()
        self._head = 0

    def on_headers_complete(self) -> None:
        """Refuse headers that are too large even though they came at once; leave a wish to `data_received`'s parser."""
        if self._wishes():
            if self._should_upgrade():
                super().on_headers_complete()  # which goes no further then
            return
        self._head = None
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
        if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > MAX_HEADERS_BYTES:
            self._refusal = _too_large()
            raise ValueError("headers too large")  # the parser stops, and has `send_400_response` called
        super().on_headers_complete()
        self.flow.crowded = len(self.pipeline) >= MAX_PIPELINED

    def on_response_complete(self) -> None:
        """Go on with the next request that waits; behind the last one, say what came that was none."""
        self.flow.crowded = len(self.pipeline) > MAX_PIPELINED
        self._running = None
        if self._unreadable and not self.pipeline:
            self._write_refusal()
        super().on_response_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def on_message_complete(self) -> None:
        """Go on; a head that is about to be read without its wish is no message yet."""
        if not self._wishes():
            super().on_message_complete()

    def _wishes(self) -> bool:
        """Whether the head that was just read wishes for another protocol, which CONNECT is by itself."""
        assert self.parser is not None
        return self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"

    def _should_upgrade(self) -> bool:
        """Whether WebSocket is wished for where there is one, and no answer is due that it would run into."""
        path = self.url.partition(b"?")[0]
        return self._get_upgrade() == b"websocket" and path in self._sockets and self._running is None

    def _head_without_wish(self) -> bytes | None:
        """Write the head of this request anew, for a parser that is to read its body; None for what is no HTTP then."""
        assert self.parser is not None
        method = self.parser.get_method()
        if method == b"CONNECT" or self._should_upgrade():
            return None
        lines = [b"%s %s HTTP/%s" % (method, self.url, self.parser.get_http_version().encode())]
        lines += [b"%s: %s" % header for header in self.headers if header[0] != b"upgrade"]
        return b"\r\n".join((*lines, b"", b""))

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection over; what speaks WebSocket is imported only where somebody watches."""
        from uvicorn.protocols.websockets.wsproto_impl import WSProtocol

        self._stop(self._head_timer, self._stall_timer)
        self._unset_keepalive_if_required()
        self.ws_protocol_class = WSProtocol
        super().handle_websocket_upgrade()

    def _is_idle(self) -> bool:
        """Whether no request is coming or being answered; line ends may come then, or the rest of a refused body."""
        answered = self.cycle is None or self.cycle.response_complete
        return answered and self._head is None and not self.transport.is_closing()

    def _await_request(self) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection; one that never took its last answer would stay open for it."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        super().timeout_keep_alive_handler()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no request that can be read, after the answers due before it, and close."""
        if self.transport.is_closing() or self._unreadable:
            return
        self._unreadable = True
        if self.cycle is not None and self.cycle.more_body and not self.cycle.response_complete:
            self._leave_last()
        if self._running is None:
            self._write_refusal()

    def _leave_last(self) -> None:
        """Give up the request whose own body cannot be read; one that is half answered already ends its connection."""
        _abandon(self.cycle)
        if self.cycle is not self._running:
            self.pipeline.popleft()
            return
        self._running = None
        if self.cycle.response_started:
            self.transport.close()

    def _write_refusal(self) -> None:
        if self.transport.is_closing():
            return
        unreadable = "The connection carries no valid HTTP/1.1 request; the server speaks no TLS or HTTP/2."
        response = self._make_refusal(self._refusal or InferenceError("INVALID_INPUT", unreadable))
        lines = [STATUS_LINE[response.status_code], b"connection: close\r\n"]
        lines += [b"%s: %s\r\n" % header for header in response.raw_headers]
        self.transport.write(b"".join((*lines, b"\r\n", bytes(response.body))))
        self.transport.close()

    def pause_writing(self) -> None:
        """Watch a client that does not take its answer as fast as it is written."""
        super().pause_writing()
        self._watch(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """The client takes it."""
        self._stop(self._stall_timer)
        super().resume_writing()

    def _watch(self, waiting: int) -> None:
        self._stop(self._stall_timer)
        self._stall_timer = self.loop.call_later(MAX_STALL_S, self._look, waiting)

    def _look(self, before: int) -> None:
        waiting = self.transport.get_write_buffer_size()
        if waiting >= before:
            self.transport.abort()
        else:
            self._watch(waiting)

    def _headers_overdue(self) -> None:
        self._refuse(InferenceError("DEADLINE_EXCEEDED", f"The headers did not come within {MAX_HEADERS_S} s."))

    def _refuse(self, why: InferenceError) -> None:
        self._refusal = why
        self.send_400_response("")

    def _stop(self, *timers: asyncio.TimerHandle | None) -> None:
        for timer in timers:
            if timer is not None:
                timer.cancel()


class _Flow(FlowControl):
    """Reads no further while too many requests wait, whatever the one that is answered asks for."""

    crowded = False

    def resume_reading(self) -> None:
        """Read on, unless it is crowded."""
        if not self.crowded:
            super().resume_reading()


def _abandon(cycle: RequestResponseCycle) -> None:
    """Tell a request that its client has gone: nothing more of it can be read, and nothing is written for it."""
    cycle.disconnected = True
    cycle.message_event.set()


def _too_large() -> InferenceError:
    return InferenceError("PAYLOAD_TOO_LARGE", f"The headers have more than {MAX_HEADERS_BYTES} bytes.")
