"""From a signal to the end: turn new requests away, let those in flight finish, then stop.

It knows what counts the requests in flight and a way to stop the server, and nothing of HTTP or the engine.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Protocol

from sie_core.concurrency.loop import call_soon

log = logging.getLogger("sie_core.server")

SIGNALS = tuple(each for each in signal.Signals if each.name in {"SIGTERM", "SIGINT", "SIGQUIT", "SIGHUP"})
GRACE_S = 1.0
"""How long abandoned requests get to answer that they were."""


class RequestGate(Protocol):
    """What lets requests in and counts those in flight."""

    @property
    def in_flight(self) -> int:
        """Requests admitted and not yet answered."""
        ...

    def close(self) -> None:
        """Take no new requests."""
        ...

    async def idle(self, timeout_s: float) -> bool:
        """Wait until no request is in flight; False if `timeout_s` passed first."""
        ...

    def abandon(self) -> int:
        """End the work of every request still in flight; return how many."""
        ...


def end_process() -> None:
    """End the process with success where threads are left at work; return where the interpreter ends at once anyway.

    It joins the threads of every executor, daemons too, and a download of weights has one: for as long as that takes.
    What they leave is what a crash leaves: locks that the system releases, and files that the next pull goes on with.
    """
    if threading.active_count() > 1:
        logging.shutdown()
        if sys.stdout is not None:
            with contextlib.suppress(OSError):
                sys.stdout.flush()
        os._exit(0)


class Stopping:
    """Drains once a signal came; a second signal ends the process at once.

    Args:
        gate: Closed by the first signal.
        timeout_s: How long requests in flight may take.
        stop: Called when none is in flight any more.
    """

    def __init__(self, gate: RequestGate, timeout_s: float, stop: Callable[[], None]) -> None:
        self._gate = gate
        self._timeout_s = timeout_s
        self._stop = stop
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        self._asked = False

    def install(self) -> None:
        """Take the signals over, but for a SIGHUP that `nohup` has us ignore; call it on the main thread."""
        for number in SIGNALS:
            if number.name != "SIGHUP" or signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._asked and signal.Signals(number).name == "SIGHUP":
            return  # systemd may send it right behind SIGTERM, and a terminal that closes sends it twice
        if self._asked:
            # Nothing that may hang: not the loop, not the device, not an atexit function.
            os._exit(128 + number)
        self._asked = True
        call_soon(self._loop, self._begin, signal.Signals(number).name)

    def _begin(self, name: str) -> None:
        self._gate.close()
        log.info(
            "%s: %d requests in flight get up to %g s; a second signal ends them now",
            name, self._gate.in_flight, self._timeout_s,
        )  # fmt: skip
        self._task = self._loop.create_task(self._drain())

    async def _drain(self) -> None:
        if not await self._gate.idle(self._timeout_s):
            log.warning("%d requests were not answered in time and are abandoned", self._gate.abandon())
            await self._gate.idle(GRACE_S)
        self._stop()
