"""One request and its reply, as their connection knows them: what is there already costs no task and no timer."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable
from typing import Final

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

PEER: Final = "sie.peer"
"""The key of a request's scope with its `Peer`, as the API knows it; other servers of the application set none."""

_STATUS: Final = len(b"HTTP/1.1 ")
"""Where the status stands in a reply."""


class Peer:
    """The client of one request.

    Args:
        cycle: The request.
    """

    __slots__ = ("_cycle", "_on_leave")

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = weakref.proxy(cycle)  # whose scope holds this object
        self._on_leave: Callable[[], None] | None = None

    def whole_body(self) -> bytes | None:
        """Take the body where all of it has come; None where the rest, or all of it, is to be received."""
        cycle = self._cycle
        if cycle.more_body or cycle.disconnected or cycle.waiting_for_100_continue:
            return None
        body, cycle.body = bytes(cycle.body), bytearray()
        cycle.message_event.clear()  # what is received next is that the client leaves
        cycle.flow.resume_reading()
        return body

    def on_leave(self, call: Callable[[], None] | None) -> None:
        """Have `call` called when the client leaves, at once where it has; None: nothing any more.

        Reading goes on, as only who reads is told: it stops with a large part of a body, and the last part is followed
        by no call of `receive`.
        """
        self._on_leave = call
        if call is not None:
            self._cycle.flow.resume_reading()
        if call is not None and self._cycle.disconnected:
            call()

    def leave(self) -> None:
        """Tell the request that its client is gone, so that nothing more is read or written for it."""
        self._cycle.disconnected = True
        self._cycle.message_event.set()
        if self._on_leave is not None:
            self._on_leave()


class ReplyTransport:
    """The transport of one reply: its head leaves with the first bytes of its body, in one system call.

    Args:
        transport: The connection's.
        cycle: The request that is answered.
    """

    __slots__ = ("_cycle", "_head", "_transport", "refused")

    def __init__(self, transport: asyncio.Transport, cycle: RequestResponseCycle) -> None:
        self._transport = transport
        self._cycle = weakref.proxy(cycle)  # which holds this object
        self.refused = False
        """Whether its status is an error."""
        self._head: bytes | None = None
        """The head that waits; empty once it has left."""

    def write(self, data: bytes) -> None:
        """Write what belongs to the reply, or `100 Continue` before it."""
        if self._head is None and self._cycle.response_started:
            self._head = data
            self.refused = data[_STATUS] >= ord("4")
        elif self._head:
            self._head, head = b"", self._head
            self._transport.writelines((head, data))
        else:
            self._transport.write(data)

    def flush(self) -> None:
        """Write the head of a reply without a body."""
        if self._head:
            self.write(b"")

    def close(self) -> None:
        """Write what waits, and close the connection."""
        self.flush()
        self._transport.close()

    def is_closing(self) -> bool:
        """Whether the connection is closed or about to be."""
        return self._transport.is_closing()
