"""One HTTP connection: uvicorn's, with bounds on what a client may have the server hold, and errors in the API's shape.

It must not know routes. Bodies are bounded by who reads them.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any, Final

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from sie_core.api.http.errors import error_response
from sie_core.api.http.limits import MAX_HEADERS_BYTES, MAX_HEADERS_S, MAX_PIPELINED, MAX_STALL_S
from sie_core.contracts import InferenceError

_UPGRADE: Final = re.compile(rb"\r\nupgrade:[^\r\n]*", re.IGNORECASE)


class Connection(HttpToolsProtocol):
    """One connection."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
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
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Refuse headers that do not end, and leave out a wish for another protocol, as HTTP allows.

        Java's HttpClient wishes for HTTP/2 with its first request, and the parser would then not read the body.
        """
        if self._head is None and (self.cycle is None or not self.cycle.more_body) and b"pgrade" in data:
            head, end, rest = data.partition(b"\r\n\r\n")
            data = b"".join((_UPGRADE.sub(b"", head), end, rest))
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
        """Refuse headers that are too large even though they came at once."""
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
        """Go on with the next request that waits."""
        self.flow.crowded = len(self.pipeline) > MAX_PIPELINED
        super().on_response_complete()

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
        """Answer what is no request that can be read, and close."""
        if self.transport.is_closing():
            return
        unreadable = "The connection carries no valid HTTP/1.1 request; the server speaks no TLS, HTTP/2 or WebSocket."
        response = error_response(self._refusal or InferenceError("INVALID_INPUT", unreadable), {"path": "/v1/"})
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


def _too_large() -> InferenceError:
    return InferenceError("PAYLOAD_TOO_LARGE", f"The headers have more than {MAX_HEADERS_BYTES} bytes.")
