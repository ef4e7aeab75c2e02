"""A program that runs beside this process: watched, started again with a pause that grows, and ended with it."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import IO

from sie_core.concurrency.tasks import within

FIRST_PAUSE_S, MOST_PAUSE_S = 0.5, 30.0
STEADY_S = 10.0
"""Who ran so long, or ended with 0, is started again after the first pause: those that grow are for who cannot run."""
_SET_PDEATHSIG = 1

log = logging.getLogger(__name__)


def sie(*arguments: str) -> list[str]:
    """Give the command line of `sie` with these arguments, in this environment."""
    return [sys.executable, "-P", "-c", "from sie_core.cli import main; main()", *arguments]


class Program:
    """One program. On Linux it is sent a signal by the system when this process ends, however that ends.

    Args:
        name: For the log.
        command: Its command line.
        variables: Over those of this process.
        out: Where what it writes goes; None: where that of this process does.
        death_signal: The signal that it is sent then.
        inherited: File descriptors that it has too.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        variables: Mapping[str, str],
        out: IO[bytes] | None = None,
        death_signal: signal.Signals = signal.SIGKILL,
        inherited: Sequence[int] = (),
    ) -> None:
        self.name = name
        self.restarts = -1
        self._command, self._variables, self._out = command, variables, out
        self._death_signal, self._inherited = death_signal, inherited
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = asyncio.Event()
        self.tried = asyncio.Event()
        """Set once it was started, or could not be, for the first time."""

    @property
    def pid(self) -> int | None:
        """Its process; None while there is none."""
        process = self._process
        return None if process is None or process.returncode is not None else process.pid

    async def run(self) -> None:
        """Keep it running until `stop`; cancelled, it is killed."""
        pause_s = FIRST_PAUSE_S
        while not self._stopping.is_set():
            started = time.monotonic()
            self.restarts += 1
            ended = await self._run_once()
            if self._stopping.is_set():
                return
            could_run = ended == 0 or time.monotonic() - started >= STEADY_S
            pause_s = FIRST_PAUSE_S if could_run else min(2 * pause_s, MOST_PAUSE_S)
            how = f"ended with {ended}" if isinstance(ended, int) else f"cannot be started ({ended})"
            log.error("%s %s; it is started again in %g s", self.name, how, pause_s)
            await within(self._stopping.wait(), pause_s)

    async def _run_once(self) -> int | Exception:
        """Start it and wait until it ends; return its exit status, or why it cannot be started."""
        try:
            process = self._process = await asyncio.create_subprocess_exec(
                *self._command,
                env={**os.environ, **self._variables},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=self._out,
                stderr=self._out,
                # A signal of the terminal is for this process, which passes it on in order.
                start_new_session=True,
                pass_fds=self._inherited,
                preexec_fn=_die_with(os.getpid(), self._death_signal),
            )
        except (OSError, subprocess.SubprocessError) as error:
            # This machine may be short of memory or processes just now.
            return error
        finally:
            self.tried.set()
        if self._stopping.is_set():
            self.signal(signal.SIGTERM)
        try:
            return await process.wait()
        except asyncio.CancelledError:
            self.signal(signal.SIGKILL)
            raise

    def terminate(self) -> None:
        """Have it drain and end; it is not started again."""
        self._stopping.set()
        self.signal(signal.SIGTERM)

    async def stop(self, timeout_s: float) -> None:
        """Have it end, and wait for that; who takes longer is killed."""
        self.terminate()
        process = self._process
        if process is None:
            return
        if not await within(process.wait(), timeout_s):
            log.error("%s has not ended within %g s and is killed", self.name, timeout_s)
            self.signal(signal.SIGKILL)
            await process.wait()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, where it runs."""
        process = self._process
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(number)


def pass_on_hangups(programs: Sequence[Program]) -> None:
    """Send programs the SIGHUP at which this process reads its log settings again; they read the same file."""
    own = signal.getsignal(signal.SIGHUP)
    assert callable(own)

    def both(number: int, frame: FrameType | None) -> None:
        own(number, frame)
        for program in programs:
            program.signal(signal.SIGHUP)

    signal.signal(signal.SIGHUP, both)


def _die_with(parent: int, death_signal: signal.Signals) -> Callable[[], None] | None:
    """Make what a child does before it begins: have the system send it a signal when its parent ends."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def die_with() -> None:
        if death_signal is signal.SIGQUIT:
            signal.signal(death_signal, signal.SIG_DFL)  # a shell has it ignored for what runs in the background
        prctl(_SET_PDEATHSIG, death_signal)
        if os.getppid() != parent:  # it ended before the call
            os._exit(1)

    return die_with
