"""Drain at a signal: turn new requests away, let those in flight finish, then stop the server."""

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
"""How long abandoned requests get to send their error."""


class RequestGate(Protocol):
    """Admits requests and counts those in flight."""

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
        """Cancel every request still in flight; return how many there were."""
        ...


def draining_signals() -> list[signal.Signals]:
    """List the signals that drain this process: not a SIGHUP that `nohup` made it ignore, or that has another use."""
    return [each for each in SIGNALS if each.name != "SIGHUP" or signal.getsignal(each) == signal.SIG_DFL]


def end_process() -> None:
    """End the process with exit status 0 where threads still work; return where there are none.

    The interpreter would join the threads of every executor, and a download of weights may take hours. Ending now
    leaves what a crash leaves: locks that the system releases, and files that the next pull continues.
    """
    if threading.active_count() > 1:
        logging.shutdown()
        if sys.stdout is not None:
            with contextlib.suppress(OSError):
                sys.stdout.flush()
        os._exit(0)


class Drain:
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
        """Handle the signals; call it on the main thread."""
        for number in draining_signals():
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._asked and signal.Signals(number).name in ("SIGHUP", "SIGQUIT"):
            # systemd may send SIGHUP right behind SIGTERM, and a terminal that closes sends it twice. A program that
            # is sent SIGQUIT where its parent ends gets one for each thread of that.
            return
        if self._asked:
            # The event loop, the device and atexit functions may all hang.
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
