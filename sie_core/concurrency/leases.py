"""Leases: every user of an object holds one, and the owner waits until none is held before removing the object."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

from sie_core.concurrency.loop import call_soon
from sie_core.concurrency.tasks import within


class Leases:
    """Counts the leases that requests, batches and stages hold. Its methods are called from any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._count = 0
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
        # Whether a lease was ever taken.
        self.served = False
        # Time when a lease was last taken or released; initially of this object's creation.
        self.last_used = clock()

    @property
    def count(self) -> int:
        """Leases held now."""
        return self._count

    def acquire(self) -> Lease:
        """Take a lease; its `release` must follow."""
        with self._lock:
            self._count += 1
            self.served, self.last_used = True, self._clock()
        return Lease(self)

    async def idle(self) -> None:
        """Wait until no lease is held."""
        event = asyncio.Event()
        waiter = (asyncio.get_running_loop(), event)
        with self._lock:
            if not self._count:
                return
            self._waiting.append(waiter)
        try:
            await event.wait()
        finally:
            with self._lock:
                self._waiting = [each for each in self._waiting if each is not waiter]

    async def idle_within(self, wait_s: float | None) -> bool:
        """Wait until no lease is held; False if one still is after `wait_s` seconds. None waits without limit."""
        return await within(self.idle(), wait_s)


class Lease:
    """One lease. `release` may be called on any thread; a second call changes nothing."""

    __slots__ = ("_leases",)

    def __init__(self, leases: Leases) -> None:
        self._leases: Leases | None = leases

    def release(self, *_: object) -> None:
        """Release the lease; arguments are those of a `with` at its end."""
        leases, self._leases = self._leases, None
        if leases is None:
            return
        with leases._lock:
            leases._count -= 1
            leases.last_used = leases._clock()
            waiting, leases._waiting = ([], leases._waiting) if leases._count else (leases._waiting, [])
        for loop, event in waiting:
            call_soon(loop, event.set)

    def __enter__(self) -> Lease:
        return self

    __exit__ = release
