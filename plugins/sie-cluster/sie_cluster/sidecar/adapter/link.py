"""The connections to the adapter process: made again without end, given up together when one of them ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from sie_cluster.ipc.framing import FrameStream, Kind, pack_pins, read_queued
from sie_cluster.ipc.listening import is_own_user
from sie_cluster.messages.configs import ConfigState, read_config_state
from sie_cluster.messages.frames import FrameError, read_head
from sie_cluster.messages.health import Vitals, decode_vitals
from sie_cluster.messages.wishes import Wish, encode_wish
from sie_core.concurrency.tasks import within

AGAIN_S = 0.2
SILENT_S = 5.0
"""How long connecting may fail before the log says so; an adapter process takes seconds to import its engine."""
TOGETHER_BYTES = 1 << 16
"""Of slices that leave by one connection although others are free."""

log = logging.getLogger(__name__)


class AdapterListener(Protocol):
    """Receives the events of an adapter process, on the event loop."""

    def adapter_connected(self) -> None:
        """Take that it is connected; it has no configs then."""
        ...

    def adapter_up(self) -> None:
        """Take that it takes work, again after each time it did not."""
        ...

    def adapter_down(self, *, lost: bool) -> None:
        """Take that it takes no work any more, or does not answer.

        Args:
            lost: Whether its connections ended, and with them what it had.
        """
        ...

    def adapter_answered(self, number: int, frame: bytes) -> None:
        """Take the number and the result of a slice."""
        ...

    def adapter_loads(self, number: int, *, waits: bool) -> None:
        """Take the number of a slice, and whether it waits for a load from now on."""
        ...

    def adapter_queued(self, received: int, batches: float) -> None:
        """Take how many slices had come and how many batches were queued then."""
        ...

    def adapter_configured(self) -> None:
        """Take that other configs are in force there."""
        ...

    def adapter_told(self) -> None:
        """Take that it says something else of itself."""
        ...


class Link:
    """One adapter process, as the sidecar sees it.

    Args:
        worker: What this worker is called.
        path: Its Unix socket.
        listener: Receives its events.
        connections: How many are made.
        ping_s: Between two pings.
        missed_pings: A process that leaves so many in a row unanswered until the next is due does not count as up
            until it answers.
        brings_configs: Whether it takes its configs from here, and is not up before it has some.
    """

    def __init__(
        self,
        worker: str,
        path: Path,
        listener: AdapterListener,
        *,
        connections: int,
        ping_s: float,
        missed_pings: float,
        brings_configs: bool,
    ) -> None:
        self._worker, self._path, self._listener = worker.encode(), path, listener
        self._connections, self._ping_s, self._missed_pings = connections, ping_s, missed_pings
        self._brings_configs = brings_configs
        self._streams: list[FrameStream] = []
        self._of: dict[int, FrameStream] = {}
        self._ended = asyncio.Event()
        self._missed = 0
        self._draining = self._is_silent = False
        self.up = False
        self._ready = False
        self._problem: str | None = None
        self.status_frame = b""
        """The last status as it came, for gateways; empty where there is none."""
        self.vitals = Vitals()
        """What it last said of its device and models."""
        self.configs = ConfigState()
        """The configs in force there."""

    @property
    def answers(self) -> bool:
        """Whether the adapter process answers pings."""
        return self._missed <= self._missed_pings

    @property
    def failed(self) -> bool:
        """Whether it takes no work although nobody has it drain."""
        return not (self.up or self._draining)

    @property
    def problem(self) -> str | None:
        """Why it takes no work."""
        if self.up:
            return None
        if not self._streams:
            return f"no adapter process answers at {self._path}"
        if self._draining:
            return "the adapter process is draining"
        if not self.answers:
            return "the adapter process does not answer"
        if self._ready and self._lacks_configs:
            return "the adapter process does not serve the configs of the config service yet"
        return self._problem or "the adapter process has not said that it is ready"

    @property
    def _lacks_configs(self) -> bool:
        return self._brings_configs and self.configs.epoch is None

    async def run(self) -> None:
        """Keep connected until cancelled."""
        loop = asyncio.get_running_loop()
        since = loop.time()
        try:
            while True:
                self._ended.clear()
                try:
                    for _ in range(self._connections):
                        await loop.create_unix_connection(self._stream, str(self._path))
                    self._listener.adapter_connected()
                    await self._until_ended()
                    since = loop.time()
                except OSError as error:
                    if loop.time() - since >= SILENT_S:
                        log.warning("no connection to the adapter process at %s: %s", self._path, error)
                        since = loop.time()
                self._give_up()
                await asyncio.sleep(AGAIN_S)
        finally:
            self._give_up()

    def send(self, number: int, frame: bytes) -> None:
        """Send a slice."""
        if self._streams:
            stream = self._of[number] = self._with_room()
            stream.send(Kind.WORK, number, frame)

    async def configure(self, piece: bytes) -> bool:
        """Send a piece of a change of configs and wait for room; False where the connection has ended."""
        if not self._streams:
            return False
        stream = self._streams[0]
        stream.send(Kind.CONFIG, 0, piece)
        return await stream.room()

    def pin(self, models: Sequence[str]) -> None:
        """Have models loaded and kept, in place of those before; a process that is connected later is told then."""
        for stream in self._streams[:1]:
            stream.send(Kind.PINS, 0, pack_pins(models))

    def load(self, wish: Wish) -> None:
        """Have a model loaded; once more is no harm."""
        for stream in self._streams[:1]:
            stream.send(Kind.LOAD, 0, encode_wish(wish))

    def cancel(self, number: int) -> None:
        """Say that nobody waits for a slice any more; there is no result then."""
        if (stream := self._of.pop(number, None)) is not None:
            stream.send(Kind.CANCEL, number)

    def _with_room(self) -> FrameStream:
        """Choose the first connection while little waits there, as what leaves together is one system call at either
        end, and so are the results; else the one where the least waits."""
        first = self._streams[0]
        if first.unsent_bytes < TOGETHER_BYTES:
            return first
        return min(self._streams, key=lambda each: each.unsent_bytes)

    def _stream(self) -> FrameStream:
        return FrameStream(self._opened, self._frame, lambda _: self._ended.set())

    def _opened(self, stream: FrameStream) -> None:
        if not is_own_user(stream.transport.get_extra_info("socket")):
            raise PermissionError(f"a process of another user listens on {self._path}")
        self._streams.append(stream)

    def _frame(self, stream: FrameStream, kind: Kind, number: int, payload: bytes) -> None:
        self._missed = 0
        if kind is Kind.RESULT:
            if self._of.pop(number, None) is not None:
                self._listener.adapter_answered(number, payload)
        else:
            try:
                self._told(stream, kind, number, payload)
            except FrameError as error:
                log.error("what the adapter process says of itself (%s) cannot be read: %s", kind.name, error)
        if kind is not Kind.RESULT or not self.up:
            self._look()

    def _told(self, stream: FrameStream, kind: Kind, number: int, payload: bytes) -> None:
        if kind is Kind.QUEUED:
            self._listener.adapter_queued(number, read_queued(payload))
        elif kind in (Kind.WAITS, Kind.GOES_ON):
            self._listener.adapter_loads(number, waits=kind is Kind.WAITS)
        elif kind is Kind.STATUS:
            head = read_head(payload)
            self._ready, self._problem, self.status_frame = bool(head.get("ready")), head.get("problem"), payload
        elif kind is Kind.VITALS:
            self.vitals = decode_vitals(payload)
            self._listener.adapter_told()
        elif kind is Kind.PING:
            before, self.configs = self.configs, read_config_state(payload)
            if self.configs != before:
                self._listener.adapter_configured()
        elif kind is Kind.DRAIN:
            self._draining = True
            self._look()
            stream.send(Kind.DRAIN, 0)

    def _look(self) -> None:
        up = (
            len(self._streams) == self._connections
            and self._ready
            and not self._draining
            and self.answers
            and not self._lacks_configs
        )
        fell_silent, self._is_silent = not (self.answers or self._is_silent), not self.answers
        was_up, self.up = self.up, up
        if up and not was_up:
            self._listener.adapter_up()
        elif not up and (was_up or fell_silent):
            self._listener.adapter_down(lost=False)

    async def _until_ended(self) -> None:
        while not self._ended.is_set():
            self._missed += 1
            self._look()
            for stream in self._streams[:1]:
                stream.send(Kind.PING, 0, self._worker)
            await within(self._ended.wait(), self._ping_s)

    def _give_up(self) -> None:
        had = bool(self._streams)
        for stream in self._streams:
            stream.abort()
        self._streams.clear()
        self._of.clear()
        self._ready, self._problem, self.status_frame = False, None, b""
        self.vitals, self.configs = Vitals(), ConfigState()
        self._missed, self._draining, self.up, self._is_silent = 0, False, False, False
        if had:
            self._listener.adapter_down(lost=True)
