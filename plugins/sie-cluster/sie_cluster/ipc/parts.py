"""Large frames travel in parts, so that small ones go between them and wait for no megabytes.

A part is the kind of the whole, 1 byte, and its length, 4 bytes, big-endian; then bytes of it. The parts of one whole
follow each other on a connection, those of the next behind them.
"""

from __future__ import annotations

import struct
from collections.abc import Container, Iterator

from sie_cluster.messages.frames import Pieces, cut_pieces, room_for, size_of

PART_BYTES = 1 << 18
"""About what a Unix socket takes at a time."""
_BEGINNING = struct.Struct("!BI")


def parts_of(kind: int, payload: Pieces) -> Iterator[Pieces]:
    """Yield the parts of a frame, in pieces that are views of it."""
    size = size_of(payload)
    beginning = _BEGINNING.pack(kind, size)
    for start in range(0, size, PART_BYTES):
        yield beginning, *cut_pieces(payload, start, start + PART_BYTES)


class Whole:
    """Puts parts together.

    Args:
        kinds: Those there are.
        sizes: The bytes that a whole may have.
    """

    def __init__(self, kinds: Container[int], sizes: range) -> None:
        self._kinds, self._sizes = kinds, sizes
        self._payload: memoryview | None = None
        self._kind = self._filled = 0

    def take(self, part: bytes) -> tuple[int, memoryview] | None:
        """Take the next part; return kind and payload once it was the last.

        Raises:
            ValueError: It is none, or not the next of the whole before it, or the whole is too large.
        """
        if len(part) <= _BEGINNING.size:
            raise ValueError(f"a part of {len(part)} bytes is cut short")
        kind, size = _BEGINNING.unpack_from(part)
        if self._payload is None:
            if size not in self._sizes or kind not in self._kinds:
                raise ValueError(f"no frame of kind {kind} and {size} bytes comes in parts")
            self._payload, self._kind, self._filled = room_for(size), kind, 0
        filled = self._filled + len(part) - _BEGINNING.size
        if (kind, size) != (self._kind, len(self._payload)) or filled > size:
            raise ValueError("a part is not the next of what came before it")
        self._payload[self._filled : filled] = memoryview(part)[_BEGINNING.size :]
        self._filled = filled
        if filled < size:
            return None
        payload, self._payload = self._payload, None
        return kind, payload
