"""Takes slices from the sidecar's connections, has them answered, and sends the results back the way they came."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

from sie_cluster.ipc.entry import Entry
from sie_cluster.ipc.framing import FrameStream, Kind, read_pins
from sie_cluster.ipc.listening import is_own_user
from sie_cluster.messages.configs import write_config_state
from sie_cluster.messages.frames import FrameError, Pieces, size_of
from sie_cluster.messages.health import Vitals, encode_vitals
from sie_cluster.messages.work import WorkHead
from sie_cluster.worker.answering import WorkerBackend, answer
from sie_cluster.worker.configs import Configs
from sie_cluster.worker.loads import Loads
from sie_cluster.worker.queued import QueuedReports
from sie_cluster.worker.vitals import ToldState
from sie_core.concurrency.pacing import PACING
from sie_core.contracts import Tracer

Place = tuple[FrameStream, int]
"""Where a result goes: a connection, and the slice's number there."""

log = logging.getLogger(__name__)

MOST_NAME = 256
DRAIN_S = 5.0
"""How long a sidecar may take to say that it sends no more."""
TELL_S = 0.02
"""From the end of a load until the sidecar is told: others may end with it."""


class Intake:
    """The connections of one adapter process, and the slices at work.

    It is also the gate that `Drain` closes: slices that come until every sidecar has said that it sends no more are
    answered.

    Args:
        backend: Answers.
        status: Writes what a sidecar is told of this process.
        queued: Tells how many batches are queued for the device, and whether nothing waits to be prepared for it.
        on_close: Called when this closes.
        most_waiting: Slices that may wait for the load of one model.
        batch_bytes: Bytes of slices that make about a batch.
        pin: Takes the models that a sidecar has pinned.
        configs: Takes what sidecars tell of configs; None: it is not for them to tell.
        vitals: Writes what heartbeats tell of this process's device and models.
        tally: Takes what front ends tell of requests.
        logs: Whether answered slices have a line in the log.
    """

    def __init__(
        self,
        backend: WorkerBackend,
        status: Callable[[], bytes],
        queued: Callable[[], tuple[float, bool]],
        on_close: Callable[[], None] = lambda: None,
        *,
        most_waiting: int = 512,
        batch_bytes: int = 65_536,
        pin: Callable[[tuple[str, ...]], None] = lambda models: None,
        configs: Configs | None = None,
        tracer: Tracer | None = None,
        vitals: Callable[[], bytes] = lambda: encode_vitals(Vitals()),
        tally: Callable[[bytes], None] = lambda told: None,
        logs: bool = True,
    ) -> None:
        self._tally, self._logs = tally, logs
        self._configs, self._pin, self._tracer = configs, pin, tracer
        self._state = ToldState(status, vitals)
        self.worker: str | None = None
        """What its sidecar calls this worker; None before there is one."""
        self._backend, self._on_close = backend, on_close
        self._most_waiting = most_waiting
        self._waiting_for: Counter[str] = Counter()
        """Slices that wait for a load, by model."""
        self._telling: asyncio.TimerHandle | None = None
        self._at_work: dict[Place, asyncio.Task[Pieces | None]] = {}
        self._loads = Loads(backend, self.tell)
        self._streams: dict[FrameStream, asyncio.Event] = {}
        self._reports = QueuedReports(queued, batch_bytes, lambda: next(iter(self._streams), None))
        self._idle = asyncio.Event()
        self._idle.set()
        self._open = True
        self._entry: Entry | None = None

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

    @property
    def problem(self) -> str | None:
        """Why no work can come: there has been no sidecar for a while."""
        return None if self._entry is None else self._entry.problem

    async def listen(self, opened: socket.socket) -> None:
        """Let sidecars connect, until the event loop ends."""
        self._entry = Entry(opened, self.stream, lambda: self.connections)
        await self._entry.listen()

    async def look(self) -> None:
        """Tell sidecars what has changed; where there is none, see that one can connect."""
        self.tell()
        if self._entry is not None:
            await self._entry.look()

    def tell(self) -> None:
        """Tell every sidecar the status and the vitals, where they have changed, and what is queued."""
        if self._telling is not None:
            self._telling.cancel()
            self._telling = None
        self._state.tell()
        self._reports.look()

    def tell_configs(self) -> None:
        """Tell every sidecar which configs are in force, and the status."""
        for stream in self._streams:
            stream.send(Kind.PING, 0, self._config_state())
        self.tell()

    def close(self) -> None:
        """Have the sidecars send no more."""
        self._open = False
        for stream in self._streams:
            stream.send(Kind.DRAIN, 0)
        self._on_close()

    async def idle(self, timeout_s: float) -> bool:
        """Wait until the sidecars send no more and have every result; False if `timeout_s` passed first."""
        try:
            async with asyncio.timeout(timeout_s):
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(DRAIN_S):
                        await self.drained()
                await self._idle.wait()
                # What a sidecar has not taken yet would be lost with this process.
                streams = list(self._streams)
                for stream in streams:
                    stream.close()
                for stream in streams:
                    await stream.ended.wait()
        except TimeoutError:
            return False
        return True

    async def drained(self) -> None:
        """Wait until every connection has said that it sends no more, or has ended."""
        for drained in list(self._streams.values()):
            await drained.wait()

    def disconnect(self) -> None:
        """End the connections, and with them what they sent."""
        for stream in list(self._streams):
            stream.abort()

    def abandon(self) -> int:
        """Cancel what is at work; the connections end, and the sidecar hands it to others."""
        for task in self._at_work.values():
            task.cancel()
        return len(self._at_work)

    def _opened(self, stream: FrameStream) -> None:
        if not is_own_user(stream.transport.get_extra_info("socket")):
            raise PermissionError("a process of another user connected to the socket of the adapter process")
        self._streams[stream] = asyncio.Event()
        stream.send(Kind.PING, 0, self._config_state())  # before work comes that may need later ones
        if not self._open:
            stream.send(Kind.DRAIN, 0)
        if len(self._streams) == 1:
            self._reports.begin()

    def _frame(self, stream: FrameStream, kind: Kind, number: int, payload: bytes) -> None:
        if kind is Kind.WORK:
            self._take(stream, number, payload)
        elif kind is Kind.CANCEL:
            if (task := self._at_work.get((stream, number))) is not None:
                task.cancel()
        elif kind is Kind.PING:
            self.worker = payload.decode("utf-8", "replace")[:MOST_NAME] or None
            self._state.tell_by(stream)
            stream.send(Kind.PING, number, self._config_state())
        elif kind is Kind.CONFIG and self._configs is not None:
            self._configs.take(stream, payload)
        elif kind is Kind.PINS:
            self._pin(read_pins(payload))
        elif kind is Kind.LOAD:
            self._loads.take(payload)
        elif kind is Kind.TALLY:
            self._tally(payload)
        elif kind is Kind.DRAIN:
            self._streams[stream].set()

    def _config_state(self) -> bytes:
        return b"" if self._configs is None else write_config_state(self._configs.state)

    def _take(self, stream: FrameStream, number: int, frame: bytes) -> None:
        """Have a slice answered."""
        self._reports.came(len(frame))
        place = stream, number
        task = self._at_work[place] = asyncio.get_running_loop().create_task(self._answer(place, frame))
        # A task that is cancelled before it begins ends without a line of its own.
        task.add_done_callback(partial(self._ended, place, len(frame)))
        self._idle.clear()

    async def _answer(self, place: Place, frame: bytes) -> Pieces | None:
        try:
            places = partial(self._waiting, place)
            return await answer(self._backend, frame, places, self.worker, self._tracer, logs=self._logs)
        except FrameError as error:
            log.error("a slice that names nobody is dropped: %s", error)
            return None

    def _ended(self, place: Place, size: int, task: asyncio.Task[Pieces | None]) -> None:
        result = None
        if not task.cancelled():
            if (error := task.exception()) is None:
                result = task.result()
            else:
                log.error("a slice has no answer", exc_info=error)
        self._reports.ended()
        if result is not None:
            stream, number = place
            PACING.answered(size + size_of(result))
            stream.send(Kind.RESULT, number, *result)
        del self._at_work[place]
        if not self._at_work:
            self._idle.set()

    @contextlib.contextmanager
    def _waiting(self, place: Place, head: WorkHead) -> Iterator[bool]:
        """Tell the sidecar that a slice waits for a load, and when it does no more; False where too many do."""
        if self._waiting_for[head.model] >= self._most_waiting:
            yield False
            return
        stream, number = place
        self._waiting_for[head.model] += 1
        stream.send(Kind.WAITS, number)
        try:
            yield True
        finally:
            self._waiting_for[head.model] -= 1
            stream.send(Kind.GOES_ON, number)
            if self._telling is None:
                self._telling = asyncio.get_running_loop().call_later(TELL_S, self.tell)

    def _closed(self, stream: FrameStream) -> None:
        """Cancel what came by a connection that has ended: the broker gives it to another. A drain waits for none."""
        self._state.leave(stream)
        drained = self._streams.pop(stream, None)
        if drained is not None:
            drained.set()
        if self._configs is not None:
            self._configs.forget(stream)
        for (came_by, _), task in self._at_work.items():
            if came_by is stream:
                task.cancel()
