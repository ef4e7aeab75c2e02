"""Lookups, and requests of connections whose last one was refused, share half of the event loop's time.

Hundreds of connections that ask again as soon as they are refused would each be answered between any two steps of
another request: a refusal takes half a millisecond, and the answer to a short text three steps. So would tens that poll
a list of models, each of which takes some milliseconds.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

AT_ONCE: Final = 2
"""Requests that begin one after the other; the event loop then has as long for others."""


class AskedAgain:
    """Begins requests a few at a time, first come first served. Used on the event loop."""

    def __init__(self) -> None:
        self._refused: deque[tuple[RequestResponseCycle, Callable[[], None]]] = deque()
        self._lookups: deque[tuple[RequestResponseCycle, Callable[[], None]]] = deque()
        self._at_work = False
        """Whether some have just begun, or others have their time."""
        self._since = self._at_once_s = 0.0

    def begin(self, cycle: RequestResponseCycle, begin: Callable[[], None], *, lookup: bool = False) -> None:
        """Have `begin` called, which starts a request's task: at once where no other is before it.

        Lookups begin one at a time, and beside those that were refused in turn with them.
        """
        (self._lookups if lookup else self._refused).append((cycle, begin))
        if not self._at_work:
            self._next()

    def _next(self) -> None:
        self._at_work, begun, loop = False, 0, asyncio.get_running_loop()
        started = time.perf_counter()
        looked_up = False
        while begun < AT_ONCE:
            waiting = self._refused if looked_up or not self._lookups else self._lookups
            if not waiting:
                break
            cycle, begin = waiting.popleft()
            if cycle.disconnected:
                continue
            looked_up = looked_up or waiting is self._lookups
            if not begun:
                loop.call_soon(self._begins)
            begin()
            begun += 1
        if begun:
            self._at_work = True
            self._at_once_s = time.perf_counter() - started  # for those that are refused before a task is made
            loop.call_soon(self._pause)  # after the first step of each task, in which most are refused again

    def _begins(self) -> None:
        self._since = time.perf_counter()

    def _pause(self) -> None:
        took_s = self._at_once_s + time.perf_counter() - self._since
        asyncio.get_running_loop().call_later(took_s, self._next)
