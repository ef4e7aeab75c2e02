"""How a connection begins to answer a request: at once, or when it is its turn."""

from __future__ import annotations

from functools import partial
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from sie_core.contracts.operational import PROBES
from sie_core.serving.exchanges import PEER, Peer, ReplyTransport
from sie_core.serving.turns import Turns


class Beginning(HttpToolsProtocol):
    """Begins the requests of a connection, one after the other.

    Args:
        arguments: Of uvicorn.
        turns: Begins lookups, and the requests of connections whose last one was refused, all of a server's.
        options: Of uvicorn.
    """

    def __init__(self, *arguments: Any, turns: Turns | None = None, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._turns = turns or Turns()
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
        """Start the task that answers a request."""
        super()._start_asgi_task(cycle, self.app)
