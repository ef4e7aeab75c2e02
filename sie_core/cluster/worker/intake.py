"""Takes slices from the sidecar's connections, has them answered, and sends the results back the way they came."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from functools import partial

from sie_core.cluster.ipc.framing import FrameStream, Kind
from sie_core.cluster.ipc.listening import is_own_user
from sie_core.cluster.messages.frames import FrameError
from sie_core.cluster.worker.answering import WorkerBackend, answer
from sie_core.cluster.worker.orphans import AtWork, Orphans

log = logging.getLogger(__name__)

DRAIN_S = 5.0
"""How long a sidecar may take to say that it sends no more."""


class Intake:
    """The connections of one adapter process, and the slices at work.

    It is also the gate that `Drain` closes: slices that come until every sidecar has said that it sends no more are
    answered.

    Args:
        backend: Answers.
        status: Writes what a sidecar is told of this process.
        on_close: Called when this closes.
    """

    def __init__(
        self, backend: WorkerBackend, status: Callable[[], bytes], on_close: Callable[[], None] = lambda: None
    ) -> None:
        self._backend, self._status, self._on_close = backend, status, on_close
        self._at_work: dict[tuple[FrameStream, int], AtWork] = {}
        self._orphans = Orphans()
        self._streams: dict[FrameStream, asyncio.Event] = {}
        self._idle = asyncio.Event()
        self._idle.set()
        self._open = True
        self._told = b""

    @property
    def in_flight(self) -> int:
        """Slices at work."""
        return len(self._at_work)

    @property
    def connections(self) -> int:
        """Connections of sidecars."""
        return len(self._streams)

    def stream(self) -> FrameStream:
        """Make the protocol of a connection."""
        return FrameStream(self._opened, self._frame, self._closed)

    def tell(self) -> None:
        """Tell every sidecar the status, where it has changed."""
        status = self._status()
        if status != self._told:
            self._told = status
            for stream in self._streams:
                stream.send(Kind.STATUS, 0, status)

    def close(self) -> None:
        """Have the sidecars send no more."""
        self._open = False
        for stream in self._streams:
            stream.send(Kind.DRAIN, 0)
        self._on_close()

    async def idle(self, timeout_s: float) -> bool:
        """Wait until the sidecars send no more and nothing is at work; False if `timeout_s` passed first."""
        try:
            async with asyncio.timeout(timeout_s):
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(DRAIN_S):
                        for drained in list(self._streams.values()):
                            await drained.wait()
                await self._idle.wait()
        except TimeoutError:
            return False
        # Results leave with the next turn of the loop.
        await asyncio.sleep(0)
        return True

    def abandon(self) -> int:
        """Cancel what is at work; the connections end, and the sidecar hands it to others."""
        for work in self._at_work.values():
            _cancel(work)
        return len(self._at_work)

    def _opened(self, stream: FrameStream) -> None:
        if not is_own_user(stream.transport.get_extra_info("socket")):
            raise PermissionError("a process of another user connected to the socket of the adapter process")
        self._streams[stream] = asyncio.Event()
        self._told = self._status()
        stream.send(Kind.STATUS, 0, self._told)
        if not self._open:
            stream.send(Kind.DRAIN, 0)
        if len(self._streams) == 1:
            self._orphans.tell_all(stream)

    def _frame(self, stream: FrameStream, kind: Kind, number: int, payload: bytes) -> None:
        if kind is Kind.WORK:
            self._take(stream, number, payload)
        elif kind is Kind.CANCEL:
            if (work := self._at_work.get((stream, number))) is not None:
                _cancel(work)
        elif kind is Kind.PING:
            stream.send(Kind.PING, number)
        elif kind is Kind.DRAIN:
            self._streams[stream].set()

    def _take(self, stream: FrameStream, number: int, frame: bytes) -> None:
        """Have a slice answered; one that is computed already, for a sidecar that has gone, is not begun again."""
        work = self._orphans.take(frame) if self._orphans else None
        if work is None:
            work = AtWork(frame, None)
            work.task = asyncio.get_running_loop().create_task(self._answer(frame))
            # A task that is cancelled before it begins ends without a line of its own.
            work.task.add_done_callback(partial(self._ended, work))
        elif work.result is not None:
            stream.send(Kind.RESULT, number, work.result)
            return
        work.to = stream, number
        self._at_work[work.to] = work
        self._idle.clear()

    async def _answer(self, frame: bytes) -> bytes | None:
        try:
            return await answer(self._backend, frame)
        except FrameError as error:
            log.error("a slice that names nobody is dropped: %s", error)
            return None

    def _ended(self, work: AtWork, task: asyncio.Task[bytes | None]) -> None:
        result = None if task.cancelled() else task.result()
        if work.to is None:
            self._orphans.finish(work, result, next(iter(self._streams), None))
            return
        stream, number = work.to
        if result is not None:
            stream.send(Kind.RESULT, number, result)
        self._remove(work.to)

    def _remove(self, place: tuple[FrameStream, int]) -> None:
        del self._at_work[place]
        if not self._at_work:
            self._idle.set()

    def _closed(self, stream: FrameStream) -> None:
        """Keep what came by a connection that has ended for the sidecar that comes next; a drain waits for none."""
        drained = self._streams.pop(stream, None)
        if drained is not None:
            drained.set()
        for place, work in [each for each in self._at_work.items() if each[0][0] is stream]:
            if self._open and self._orphans.add(work):
                self._remove(place)
            else:
                _cancel(work)


def _cancel(work: AtWork) -> None:
    if work.task is not None:
        work.task.cancel()
