"""One HTTP connection: uvicorn's, with bounds on what a client may occupy, and errors in the API's shape.

It extends asyncio's and httptools' callbacks and public names of uvicorn alone; `pyproject.toml` pins the releases of
uvicorn that it was tested with. Whoever reads a body bounds its size.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Container
from http import HTTPStatus
from itertools import chain
from typing import Any

from starlette.responses import Response
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from sie_core.contracts import InferenceError
from sie_core.serving.bounds import (
    MAX_HEADERS_BYTES,
    MAX_HEADERS_S,
    MAX_PIPELINED,
    MAX_STALL_S,
    MAX_UNREAD_BYTES,
    MAX_UNREAD_S,
)
from sie_core.serving.http_parser import UpgradeIgnoringParser


class Connection(HttpToolsProtocol):
    """One connection.

    Args:
        refusal: Makes the answer to bytes that cannot be read as a request.
        sockets: Paths on which an upgrade to WebSocket is granted; every other `Upgrade` header is ignored.
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
        self.parser: UpgradeIgnoringParser | None = UpgradeIgnoringParser(self, self._head_without_upgrade)  # type: ignore[assignment]
        self._make_refusal = refusal
        self._sockets = sockets
        self._due: deque[RequestResponseCycle] = deque()
        """Requests that are not answered: the first is being answered, the others wait for it."""
        self._unreadable = False
        """Whether the last bytes were no valid request: reading stopped, and the refusal follows the answers due."""
        self._head: int | None = None
        """Bytes of the headers being received, without those of their first packet; None between headers."""
        self._refusal: InferenceError | None = None
        self._head_timer: asyncio.TimerHandle | None = None
        self._stall = _Stall(self.loop)
        self._close_timer: asyncio.TimerHandle | None = None
        self._unread = 0
        """Bytes that came after the last bytes that were read."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the idle timer: a connection on which nothing arrives is closed like one idle between requests."""
        super().connection_made(transport)
        self.flow: _Flow = _Flow(transport)
        self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers and abandon the requests of this connection."""
        self._stall.stop()
        self._stop(self._head_timer, self._close_timer)
        self.pipeline.clear()
        if self._due:
            _abandon(self._due[0])
        self._due.clear()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Refuse headers that do not end and what finds no memory; ignore everything after a refused request."""
        if self._unreadable:
            self._leave_unread(len(data))
            return
        if self._head is not None:
            self._head += len(data)
        try:
            super().data_received(data)
        except MemoryError:
            self._refuse(InferenceError("RESOURCE_EXHAUSTED", "The server has no memory to read this request now."))
        if self.transport.get_protocol() is not self:
            return  # a WebSocket has the connection now
        if self._head is not None and self._head_timer is None:
            self._head_timer = self.loop.call_later(MAX_HEADERS_S, self._headers_overdue)
        elif self._is_idle() and self.timeout_keep_alive_task is None:
            self._await_request()
        if (self._head or 0) > MAX_HEADERS_BYTES:
            self._refuse(_too_large())

    def on_message_begin(self) -> None:
        """Start counting the bytes of the headers."""
        super().on_message_begin()
        self._head = 0

    def on_headers_complete(self) -> None:
        """Refuse headers that are too large although they arrived at once; the parser rereads those with `Upgrade`."""
        if self._asks_for_upgrade() and not self._grants_upgrade():
            return
        self._head = None
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
        if len(self.url) + sum(map(len, chain.from_iterable(self.headers))) > MAX_HEADERS_BYTES:
            self._refusal = _too_large()
            raise ValueError("headers too large")  # the parser stops, and has `send_400_response` called
        before = self.cycle
        super().on_headers_complete()
        if self.cycle is not before:  # no WebSocket
            self._due.append(self.cycle)
        self.flow.crowded = len(self.pipeline) >= MAX_PIPELINED

    def on_response_complete(self) -> None:
        """Start the next request that waits; after the last one, refuse the invalid bytes that followed."""
        self.flow.crowded = len(self.pipeline) > MAX_PIPELINED
        self._due.popleft()
        if self._unreadable and not self.pipeline:
            self._write_refusal()
        super().on_response_complete()

    def on_message_complete(self) -> None:
        """Complete the message, unless its head is about to be read again without `Upgrade`."""
        if not self._asks_for_upgrade():
            super().on_message_complete()

    def _asks_for_upgrade(self) -> bool:
        """Whether the head just read has an `Upgrade` header; the method CONNECT does not count as one."""
        assert self.parser is not None
        return self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"

    def _grants_upgrade(self) -> bool:
        """Whether the upgrade is granted: to WebSocket, on a path that speaks it, with no answer due."""
        wanted = [value.lower() for name, value in self.headers if name == b"upgrade"]
        return wanted == [b"websocket"] and self.url.partition(b"?")[0] in self._sockets and not self._due

    def _head_without_upgrade(self) -> bytes | None:
        """Write the request's head without `Upgrade`, to be read again; None where HTTP ends after the head."""
        assert self.parser is not None
        method = self.parser.get_method()
        if method == b"CONNECT" or self._grants_upgrade():
            return None
        lines = [b"%s %s HTTP/%s" % (method, self.url, self.parser.get_http_version().encode())]
        lines += [b"%s: %s" % header for header in self.headers if header[0] != b"upgrade"]
        return b"\r\n".join((*lines, b"", b""))

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection to uvicorn's WebSocket protocol."""
        self._stall.stop()
        self._stop(self._head_timer)
        super().handle_websocket_upgrade()

    def _is_idle(self) -> bool:
        """Whether no request is being received or answered; line ends or the rest of a refused body may come."""
        answered = self.cycle is None or self.cycle.response_complete
        return answered and self._head is None and not self.transport.is_closing()

    def _await_request(self) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection; abort it where the client has not read its last answer."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        super().timeout_keep_alive_handler()

    def send_400_response(self, msg: str) -> None:
        """Refuse an invalid request once the answers before it are sent, and close."""
        if self.transport.is_closing() or self._unreadable:
            return
        self._unreadable = True
        if self.cycle is not None and self.cycle.more_body and not self.cycle.response_complete:
            self._leave_last()
        if not self._due:
            self._write_refusal()

    def _leave_last(self) -> None:
        """Abandon the request whose body is invalid; one that is half answered ends its connection."""
        _abandon(self.cycle)
        self._due.pop()
        if self._due:
            self.pipeline.popleft()
        elif self.cycle.response_started:
            self.transport.close()

    def _write_refusal(self) -> None:
        if self.transport.is_closing():
            return
        unreadable = "The connection carries no valid HTTP/1.1 request; the server speaks no TLS or HTTP/2."
        response = self._make_refusal(self._refusal or InferenceError("INVALID_INPUT", unreadable))
        phrase = HTTPStatus(response.status_code).phrase
        lines = [b"HTTP/1.1 %d %s\r\n" % (response.status_code, phrase.encode()), b"connection: close\r\n"]
        lines += [b"%s: %s\r\n" % header for header in response.raw_headers]
        self.transport.write(b"".join((*lines, b"\r\n", bytes(response.body))))
        # Closed at once, with bytes of the client on their way, TCP resets the connection and the refusal is lost.
        self.transport.write_eof()
        self._close_timer = self.loop.call_later(MAX_UNREAD_S, self.transport.close)

    def _leave_unread(self, size: int) -> None:
        self._unread += size
        if self._unread > MAX_UNREAD_BYTES:
            self.transport.abort()

    def pause_writing(self) -> None:
        """Watch a client that reads its answer more slowly than it is written."""
        super().pause_writing()
        self._stall.watch(self.transport)

    def resume_writing(self) -> None:
        """Stop watching: the client reads again."""
        self._stall.stop()
        super().resume_writing()

    def _headers_overdue(self) -> None:
        self._refuse(InferenceError("DEADLINE_EXCEEDED", f"The headers did not come within {MAX_HEADERS_S} s."))

    def _refuse(self, why: InferenceError) -> None:
        self._refusal = why
        self.send_400_response("")

    def _stop(self, *timers: asyncio.TimerHandle | None) -> None:
        for timer in timers:
            if timer is not None:
                timer.cancel()


class _Stall:
    """Ends the connection of a client that takes nothing of its answer for `MAX_STALL_S` seconds."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, transport: asyncio.Transport) -> None:
        self.stop()
        self._timer = self._loop.call_later(MAX_STALL_S, self._look, transport, transport.get_write_buffer_size())

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look(self, transport: asyncio.Transport, before: int) -> None:
        if transport.get_write_buffer_size() >= before:
            transport.abort()
        else:
            self.watch(transport)


class _Flow(FlowControl):
    """Keeps reading paused while too many pipelined requests wait."""

    crowded = False

    def resume_reading(self) -> None:
        """Resume reading, unless too many requests wait."""
        if not self.crowded:
            super().resume_reading()


def _abandon(cycle: RequestResponseCycle) -> None:
    """Tell a request that its client is gone."""
    cycle.disconnected = True
    cycle.message_event.set()


def _too_large() -> InferenceError:
    return InferenceError("PAYLOAD_TOO_LARGE", f"The headers have more than {MAX_HEADERS_BYTES} bytes.")
