"""A few threads for one CPU stage of the pipeline.

Unlike `concurrent.futures`, it creates no future for tasks without a reader. Its threads are daemons, so a hanging call
cannot keep the process from exiting and can be reported.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

log = logging.getLogger(__name__)

clock = time.monotonic


@dataclass(slots=True, eq=False)
class Work:
    """A call, and when it began."""

    call: Callable[..., None]
    arguments: tuple[Any, ...]
    since: float = 0.0


class CpuPool:
    """Runs calls on `threads` threads, first come first served; quick calls and others take turns.

    Its methods may be called from any thread. The queue is unbounded: callers remove calls whose results are no longer
    awaited.
    """

    def __init__(self, name: str, threads: int) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._waiting: OrderedDict[Work, None] = OrderedDict()
        self._quick: OrderedDict[Work, None] = OrderedDict()
        # Whether the last call taken was one of these.
        self._took_quick = False
        # One for each call that waits. A `Condition` instead costs a request 100 µs: a notified thread wakes up only to
        # wait for the lock that the notifier still holds.
        self._tokens: SimpleQueue[None] = SimpleQueue()
        self._closing = False
        self._at_work: list[Work | None] = [None] * threads
        """The call that each thread is running."""
        self._threads = [
            threading.Thread(target=self._work, args=(number,), name=f"{name}-{number}", daemon=True)
            for number in range(threads)
        ]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    @property
    def waiting(self) -> int:
        """Calls that no thread has taken yet."""
        return len(self._waiting) + len(self._quick)

    @property
    def at_work(self) -> int:
        """Threads that are at a call."""
        return sum(work is not None for work in self._at_work)

    @property
    def busy(self) -> bool:
        """Whether every thread is at a call."""
        return None not in self._at_work

    def submit(self, call: Callable[..., None], *arguments: Any, quick: bool = False) -> Work:
        """Queue a call. It must handle its own errors: an exception is only logged.

        Args:
            call: The call.
            arguments: Its arguments.
            quick: Whether it is over in a moment, and need not wait for all that were queued before.

        Returns:
            The queued call, for `remove`.
        """
        work = Work(call, arguments)
        with self._lock:
            (self._quick if quick else self._waiting)[work] = None
        self._tokens.put(None)
        return work

    def remove(self, work: Work) -> bool:
        """Forget a call that waits; False if a thread has taken it."""
        with self._lock:
            lane = self._quick if work in self._quick else self._waiting
            if work not in lane:
                return False
            del lane[work]
        with suppress(Empty):  # a thread that has taken its token already finds nothing, and waits again
            self._tokens.get_nowait()
        return True

    def close(self, timeout_s: float) -> bool:
        """Let queued work finish and join the threads; False if one still ran after `timeout_s`."""
        until = clock() + timeout_s
        self._closing = True
        for _ in self._threads:
            self._tokens.put(None)
        started = [thread for thread in self._threads if thread.ident is not None]
        for thread in started:
            thread.join(max(0.0, until - clock()))
        return not any(thread.is_alive() for thread in started)

    def note(self, limit_s: float) -> str | None:
        """Report how many threads have been in one call for more than `limit_s` seconds; None if none has."""
        held = len(self._overdue(limit_s))
        if not held:
            return None
        return f"{held} of {len(self._threads)} {self._name} threads at work on one request for over {limit_s:g} s"

    def problem(self, limit_s: float) -> str | None:
        """Report it only if every thread is affected, because nothing is done any more."""
        return self.note(limit_s) if len(self._overdue(limit_s)) == len(self._threads) else None

    def _overdue(self, limit_s: float) -> list[Work]:
        now = clock()
        return [work for work in self._at_work if work is not None and now - work.since > limit_s]

    def _work(self, number: int) -> None:
        while (work := self._next()) is not None:
            work.since = clock()
            self._at_work[number] = work
            try:
                work.call(*work.arguments)
            except BaseException:
                log.exception("a task of %s failed beyond its own handling", threading.current_thread().name)
            self._at_work[number] = None
            del work  # an idle thread must not keep the last request alive

    def _next(self) -> Work | None:
        """Take the call whose turn it is, or wait for one; None once closed and nothing waits."""
        while True:
            self._tokens.get()
            with self._lock:
                self._took_quick = bool(self._quick) and not (self._took_quick and self._waiting)
                lane = self._quick if self._took_quick else self._waiting
                if lane:
                    return lane.popitem(last=False)[0]
            if self._closing:
                return None
