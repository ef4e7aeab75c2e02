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

LEAST_PAUSE_S: Final = 0.001
"""Shorter pauses add up until they are as long: the event loop's timers count milliseconds."""


class Turns:
    """Begins requests one at a time, and leaves the event loop to others for as long. Used on the event loop.

    Lookups and what was refused before have as much time each while both wait, whatever one of them takes, and each
    kind is served first come, first served. What a request does after its first step counts for nothing.
    """

    def __init__(self) -> None:
        self._waiting: dict[bool, deque[tuple[RequestResponseCycle, Callable[[], None]]]] = {
            lookup: deque() for lookup in (False, True)
        }
        # Start-time fair queueing of the two kinds: what each had, and what the last one that began had had before.
        self._used_s = {False: 0.0, True: 0.0}
        self._virtual_s = 0.0
        self._at_work = False
        """Whether one has just begun, or others have their time."""
        self._lookup = False
        self._begun_s = self._since = self._owed_s = 0.0

    def begin(self, cycle: RequestResponseCycle, begin: Callable[[], None], *, lookup: bool = False) -> None:
        """Have `begin` called, which starts a request's task: at once where no other is before it."""
        if not self._waiting[lookup]:
            self._used_s[lookup] = max(self._used_s[lookup], self._virtual_s)
        self._waiting[lookup].append((cycle, begin))
        if not self._at_work:
            self._next()

    def _next(self) -> None:
        # Also while one begins: a request that is refused at once has its connection begin another.
        self._at_work = True
        while kinds := [lookup for lookup, waiting in self._waiting.items() if waiting]:
            self._lookup = min(kinds, key=self._used_s.__getitem__)
            cycle, begin = self._waiting[self._lookup].popleft()
            if cycle.disconnected:
                continue
            self._virtual_s = self._used_s[self._lookup]
            loop, started = asyncio.get_running_loop(), time.perf_counter()
            loop.call_soon(self._begins)
            try:
                begin()
            finally:
                self._begun_s = time.perf_counter() - started  # of one that is refused before a task is made
                loop.call_soon(self._pause)  # after the first step of its task, in which most are refused again
            return
        self._at_work = False

    def _begins(self) -> None:
        self._since = time.perf_counter()

    def _pause(self) -> None:
        took_s = self._begun_s + time.perf_counter() - self._since
        self._used_s[self._lookup] += took_s
        self._owed_s += took_s
        loop = asyncio.get_running_loop()
        if self._owed_s < LEAST_PAUSE_S:
            loop.call_soon(self._next)
        else:
            owed_s, self._owed_s = self._owed_s, 0.0
            loop.call_later(owed_s, self._next)
