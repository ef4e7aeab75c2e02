"""Takes slices from the sidecar's connections, has them answered, and sends the results back the way they came."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from sie_core.cluster.ipc.framing import FrameStream, Kind
from sie_core.cluster.ipc.listening import is_own_user
from sie_core.cluster.messages.frames import FrameError
from sie_core.cluster.worker.answering import WorkerBackend, answer

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
        self._at_work: dict[tuple[FrameStream, int], asyncio.Task[None]] = {}
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
        for task in self._at_work.values():
            task.cancel()
        return len(self._at_work)

    def _opened(self, stream: FrameStream) -> None:
        if not is_own_user(stream.transport.get_extra_info("socket")):
            raise PermissionError("a process of another user connected to the socket of the adapter process")
        self._streams[stream] = asyncio.Event()
        self._told = self._status()
        stream.send(Kind.STATUS, 0, self._told)
        if not self._open:
            stream.send(Kind.DRAIN, 0)

    def _frame(self, stream: FrameStream, kind: Kind, number: int, payload: bytes) -> None:
        if kind is Kind.WORK:
            task = asyncio.get_running_loop().create_task(self._answer(stream, number, payload))
            self._at_work[stream, number] = task
            self._idle.clear()
        elif kind is Kind.CANCEL:
            if (at_work := self._at_work.get((stream, number))) is not None:
                at_work.cancel()
        elif kind is Kind.PING:
            stream.send(Kind.PING, number)
        elif kind is Kind.DRAIN:
            self._streams[stream].set()

    async def _answer(self, stream: FrameStream, number: int, payload: bytes) -> None:
        try:
            stream.send(Kind.RESULT, number, await answer(self._backend, payload))
        except FrameError as error:
            log.error("a slice that names nobody is dropped: %s", error)
        finally:
            del self._at_work[stream, number]
            if not self._at_work:
                self._idle.set()

    def _closed(self, stream: FrameStream) -> None:
        """Cancel what came by a connection that has ended: nobody can be told."""
        drained = self._streams.pop(stream, None)
        if drained is not None:
            drained.set()
        for (of, _), task in self._at_work.items():
            if of is stream:
                task.cancel()
