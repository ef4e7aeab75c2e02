"""Frames on a stream: length of the payload, 4 bytes; kind, 1 byte; number, 8 bytes; all big-endian; the payload.

What is sent within one turn of the event loop leaves in one system call. Of what is large a part leaves at a time, as
fast as the other side takes them and small results leave room for it; small frames overtake it, but for those that end
something.
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum
from typing import cast

from sie_cluster.ipc.parts import Whole, parts_of
from sie_cluster.messages.frames import Pieces, size_of
from sie_core.concurrency.pacing import LARGE_BYTES as PACED_BYTES
from sie_core.concurrency.pacing import PACING

_START = struct.Struct("!IBQ")
LARGE_BYTES = 1 << 18
"""Of a frame from which on it leaves in parts; one that comes whole and is larger ends the connection."""
MOST_BYTES = 1 << 30
"""Of what comes in parts: more than the largest result has."""


class Kind(IntEnum):
    """What a frame is."""

    WORK = 1
    """To the adapter process: a slice, as it came from the queue. Its result bears its number."""
    RESULT = 2
    """To the sidecar."""
    CANCEL = 3
    """To the adapter process: nobody waits for that number any more. No result follows, unless it is on its way."""
    STATUS = 4
    """To the sidecar, at first and whenever something changed: see `sie_cluster.messages.status`."""
    PING = 5
    """To the adapter process, with what the worker is called. It answers with what `write_config_state` says, which it
    also sends by itself when other configs are in force."""
    DRAIN = 6
    """To the sidecar: send no more work. It sends the frame back behind the last."""
    WAITS = 8
    """To the sidecar: the slice of that number waits for a load, and does not hold up others."""
    GOES_ON = 9
    """To the sidecar: it waits no more."""
    QUEUED = 10
    """To the sidecar: how many batches are queued for the device, as `pack_queued` writes it. The number is that of
    the slices that had come by all connections."""
    CONFIG = 11
    """To the adapter process: a piece of a change of configs; see `sie_cluster.messages.configs`."""
    PART = 12
    """Of a large frame of another kind and the same number; see `sie_cluster.ipc.parts`."""
    VITALS = 13
    """To the sidecar, at first and whenever something changed: see `sie_cluster.messages.health`."""
    PINS = 14
    """To the adapter process: the models to load and to keep, as `pack_pins` writes them, in place of those before."""
    LOAD = 15
    """To the adapter process: load a model, or one of its LoRA adapters, before work for it comes; see
    `sie_cluster.messages.wishes`."""
    TALLY = 16
    """From a front end: what became of requests; see `sie_cluster.frontends.tally`."""


IN_ORDER = (Kind.CANCEL, Kind.DRAIN, Kind.CONFIG)
"""They belong to frames before them."""
_MOST_FRAME = LARGE_BYTES + 64
_KINDS = {int(kind): kind for kind in Kind}
_IN_PARTS = _KINDS.keys() - {int(Kind.PART)}
_QUEUED = struct.Struct("!d")


def pack_queued(batches: float) -> bytes:
    """Write the payload of `Kind.QUEUED`."""
    return _QUEUED.pack(batches)


def read_queued(payload: bytes) -> float:
    """Read it; 0 of what is none."""
    return float(_QUEUED.unpack(payload)[0]) if len(payload) == _QUEUED.size else 0.0


def pack_pins(models: Iterable[str]) -> bytes:
    """Write the payload of `Kind.PINS`."""
    return json.dumps(list(models)).encode()


def read_pins(payload: bytes) -> tuple[str, ...]:
    """Read it; nothing of what is none."""
    try:
        told = json.loads(payload)
    except ValueError:
        return ()
    return tuple(each for each in told if isinstance(each, str)) if isinstance(told, list) else ()


OnFrame = Callable[["FrameStream", Kind, int, bytes], None]


class FrameStream(asyncio.Protocol):
    """One connection that carries frames.

    Args:
        on_open: Called once connected; what it raises ends the connection.
        on_frame: Takes each frame.
        on_closed: Called once, when the connection has ended.
    """

    def __init__(
        self,
        on_open: Callable[[FrameStream], None],
        on_frame: OnFrame,
        on_closed: Callable[[FrameStream], None],
    ) -> None:
        self._on_open, self._on_frame, self._on_closed = on_open, on_frame, on_closed
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._missing = _START.size
        """Bytes without which the buffer holds no whole frame."""
        self._out: list[bytes | memoryview] = []
        self._large: deque[tuple[Kind, int, Iterator[Pieces], int]] = deque()
        """What leaves in parts, and what waits behind it: kind, number, what is left of it, and its bytes."""
        self._whole = Whole(_IN_PARTS, range(LARGE_BYTES, MOST_BYTES + 1))
        self._is_scheduled = False
        self._turn: asyncio.TimerHandle | None = None
        """Comes when the next of what is large may leave."""
        self.ended = asyncio.Event()
        """Set once the connection has ended."""
        self._room = asyncio.Event()
        self._room.set()

    @property
    def is_open(self) -> bool:
        """Whether frames can be sent."""
        return self._transport is not None and not self._transport.is_closing()

    @property
    def unsent_bytes(self) -> int:
        """Bytes handed over that the other side has not taken."""
        waiting = size_of(self._out) + sum(size for *_, size in self._large)
        return waiting + (0 if self._transport is None else self._transport.get_write_buffer_size())

    @property
    def transport(self) -> asyncio.Transport:
        """The connection's."""
        assert self._transport is not None
        return self._transport

    def send(self, kind: Kind, number: int, *payload: bytes | memoryview) -> None:
        """Send a frame with the end of the loop's turn, a large one in parts; nothing where the connection has ended.

        Args:
            kind: What it is.
            number: Of the slice.
            payload: Its pieces, which are not copied.
        """
        if not self.is_open:
            return
        size = size_of(payload)
        if size >= LARGE_BYTES:
            self._large.append((Kind.PART, number, parts_of(kind, payload), size))
        elif self._large and kind in IN_ORDER:
            self._large.append((kind, number, iter((payload,)), size))
        else:
            self._write(kind, number, payload)
        self._flush_soon()

    async def room(self) -> bool:
        """Wait until the other side has taken most of what was sent; False where the connection has ended."""
        self._flush()
        await self._room.wait()
        return self.is_open

    def close(self) -> None:
        """Send what was handed over, and end the connection."""
        while self._large:
            self._write_large()
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """End the connection now."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is of no class of asyncio's
        try:
            self._on_open(self)
        except Exception:
            self.transport.abort()
            raise

    def connection_lost(self, error: Exception | None) -> None:
        """End."""
        self._out.clear()
        self._room.set()
        self._large.clear()
        if self._turn is not None:
            self._turn.cancel()
        self.ended.set()
        self._on_closed(self)

    def pause_writing(self) -> None:
        """Take that the other side does not keep up; what is large waits until it does."""
        self._room.clear()

    def resume_writing(self) -> None:
        """Take that it does again."""
        self._room.set()
        if self._large:
            self._flush_soon()

    def data_received(self, data: bytes) -> None:
        """Take the frames that are whole now."""
        self._buffer += data
        start = 0
        while len(self._buffer) - start >= self._missing:
            size, told, number = _START.unpack_from(self._buffer, start)
            stop = start + _START.size + size
            kind = _KINDS.get(told)
            if size > _MOST_FRAME or kind is None:
                self.abort()
                return
            if len(self._buffer) < stop:
                self._missing = stop - start
                break
            payload = bytes(memoryview(self._buffer)[start + _START.size : stop])
            start, self._missing = stop, _START.size
            if kind is not Kind.PART:
                self._on_frame(self, kind, number, payload)
            elif not self._take_part(number, payload):
                self.abort()
                return
        del self._buffer[:start]

    def _take_part(self, number: int, part: bytes) -> bool:
        """Take a part of a large frame; False where it is none."""
        try:
            whole = self._whole.take(part)
        except ValueError:
            return False
        if whole is not None:
            kind, payload = whole
            self._on_frame(self, _KINDS[kind], number, cast("bytes", payload))  # a view is read as bytes are
        return True

    def _write(self, kind: Kind, number: int, payload: Pieces) -> None:
        self._out.append(_START.pack(size_of(payload), kind, number))
        self._out += filter(None, payload)

    def _write_large(self) -> None:
        """Write the next of what leaves in parts."""
        kind, number, payloads, _ = self._large[0]
        if (payload := next(payloads, None)) is None:
            self._large.popleft()
        else:
            self._write(kind, number, payload)

    def _flush_soon(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_scheduled = False
        if self._large and self._room.is_set() and self._turn is None:
            *_, size = self._large[0]
            wait_s = PACING.take(LARGE_BYTES) if size > PACED_BYTES else 0.0
            if wait_s > 0:
                self._turn = self._loop.call_later(wait_s, self._take_turn)
            else:
                self._write_large()
        out, self._out = self._out, []
        if out and self.is_open:
            self.transport.writelines(out)
        if self._large and self._room.is_set() and self._turn is None:
            self._flush_soon()

    def _take_turn(self) -> None:
        self._turn = None
        if self._large and self._room.is_set():
            self._write_large()
        self._flush_soon()
