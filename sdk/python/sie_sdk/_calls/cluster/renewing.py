"""What renews leases beside the calls of a client: a thread for each pool, or a task."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from sie_sdk._calls.exchange import Operation
from sie_sdk.errors import SIEError

JOIN_S = 1.0


class _Ended(Exception):
    """A renewal is wanted no more."""


class Threads:
    """Those of a synchronous client.

    Args:
        run: Performs an operation, pausing as it is told.
    """

    def __init__(self, run: Callable[[Operation[None], Callable[[float], None]], None]) -> None:
        self._run = run
        self._of: dict[str, tuple[threading.Event, threading.Thread]] = {}

    def begin(self, name: str, renewals: Operation[None]) -> None:
        """Renew the lease of a pool from now on."""
        self.end(name)
        ended = threading.Event()

        def pause(seconds: float) -> None:
            if ended.wait(seconds):
                raise _Ended

        def renew() -> None:
            try:
                self._run(renewals, pause)
            except (_Ended, SIEError):
                pass
            except RuntimeError:  # httpx, of a client that was closed meanwhile
                if not ended.is_set():
                    raise

        thread = threading.Thread(target=renew, name=f"sie-lease-{name}", daemon=True)
        self._of[name] = ended, thread
        thread.start()

    def end(self, name: str | None = None) -> None:
        """Renew one lease no more, or none."""
        for each in list(self._of) if name is None else [name]:
            if each in self._of:
                ended, thread = self._of.pop(each)
                ended.set()
                thread.join(JOIN_S)


class Tasks:
    """Those of an asynchronous client.

    Args:
        run: Performs an operation.
    """

    def __init__(self, run: Callable[[Operation[None]], Coroutine[Any, Any, None]]) -> None:
        self._run = run
        self._of: dict[str, asyncio.Task[None]] = {}

    async def begin(self, name: str, renewals: Operation[None]) -> None:
        """Renew the lease of a pool from now on."""
        await self.end(name)
        self._of[name] = asyncio.create_task(self._run(renewals), name=f"sie-lease-{name}")

    async def end(self, name: str | None = None) -> None:
        """Renew one lease no more, or none."""
        tasks = [self._of.pop(each) for each in (list(self._of) if name is None else [name]) if each in self._of]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
