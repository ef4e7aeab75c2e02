"""How a connection begins to answer a request: it is refused at once, waits its turn, or gets a task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from sie_core.contracts.operational import PROBES
from sie_core.serving.exchanges import PEER, Peer, ReplyTransport
from sie_core.serving.turns import Turns

Early = Callable[[Any, bytes], tuple[int, Sequence[tuple[bytes, bytes]], bytes] | None]
"""Takes the scope of a `POST` and its body; returns the status, headers and body of a refusal, or None."""


class Beginning(HttpToolsProtocol):
    """Begins the requests of a connection, one after the other.

    Args:
        arguments: Of uvicorn.
        early: Refuses a request whose body came with its head; where it returns None, the application answers.
        turns: Begins lookups, and the requests of connections whose last one was refused, all of a server's.
        options: Of uvicorn.
    """

    def __init__(self, *arguments: Any, turns: Turns | None = None, early: Early | None = None, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._turns, self._early = turns or Turns(), early
        self._refused = False  # whether the last answer was an error
        self._running: RequestResponseCycle | None = None
        """The request that is being answered; `cycle` is the last that arrived."""
        self._reply: ReplyTransport | None = None
        """That of the request that is being answered."""
        self._first: RequestResponseCycle | None = None
        """The request to begin once the bytes are read that came with its head."""
        self._reads = False
        """Whether bytes that came are being read."""

    def _begin_first(self) -> None:
        """Begin a request whose head was read while `_reads`: its body may have come too."""
        self._reads = False
        if self._first is not None:
            first, self._first = self._first, None
            self._begin(first)

    def _ended(self) -> None:
        """Note that the reply to the running request is written."""
        if self._reply is not None:
            self._reply.flush()
            self._refused = self._reply.refused
        self._running = self._reply = None

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        self._reply = cycle.transport = ReplyTransport(self.transport, cycle)  # type: ignore[assignment]
        cycle.scope[PEER] = Peer(cycle)  # type: ignore[typeddict-unknown-key]
        if self._reads:  # its body may come with its head
            self._first = cycle
        else:
            self._begin(cycle)

    def _begin(self, cycle: RequestResponseCycle) -> None:
        lookup = cycle.scope["method"] != "POST"
        waits = cycle.scope["path"] not in PROBES if lookup else self._refused
        if waits:
            self._turns.begin(cycle, partial(self._answer, cycle), lookup=lookup)
        else:
            self._answer(cycle)

    def _answer(self, cycle: RequestResponseCycle) -> None:
        """Refuse a request at once, or start the task that answers it."""
        whole = not (cycle.more_body or cycle.disconnected or cycle.waiting_for_100_continue)
        if self._early is not None and whole and cycle.scope["method"] == "POST" and not self.flow.write_paused:
            refusal = self._early(cycle.scope, bytes(cycle.body))
            if refusal is not None:
                self._refuse_early(cycle, *refusal)
                return
        super()._start_asgi_task(cycle, self.app)

    def _refuse_early(
        self, cycle: RequestResponseCycle, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes
    ) -> None:
        assert self._reply is not None
        lines = [STATUS_LINE[status]]
        lines += [b"%s: %s\r\n" % header for header in (*cycle.default_headers, *headers)]
        if not cycle.keep_alive:
            lines.append(b"connection: close\r\n")
        self.transport.write(b"".join((*lines, b"\r\n", body)))
        self._reply.refused = cycle.response_started = cycle.response_complete = True
        if not cycle.keep_alive:
            self.transport.close()
        cycle.on_response = _nothing  # the connection's own method, which would make a reference cycle
        self.on_response_complete()


def _nothing() -> None:
    pass
