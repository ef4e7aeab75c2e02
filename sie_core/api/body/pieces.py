"""The body of a large reply in pieces: each is made when the client has taken those before it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Final

STREAMED: Final = 4 * 2**20
"""Bytes of a backend's items from which a reply goes out in pieces; a smaller one is written whole, which is faster."""
PIECE: Final = 2**20
"""Bytes of a piece, about."""


@dataclass(frozen=True, slots=True)
class Pieces:
    """A body that is written while it is sent."""

    parts: Iterable[bytes]
    length: int | None = None
    """Its bytes, where they are known before it is written."""


Content = bytes | Pieces
"""A body, whole or in pieces."""


def in_pieces(body: Pieces, size: int) -> Content:
    """Return the body of a reply whose items have `size` bytes, whole or in pieces.

    The first piece is written at once: what cannot be written is mostly found there, while a refusal can still be sent.
    """
    if size < STREAMED:
        return b"".join(body.parts)
    pieces = _joined(body.parts)
    first = next(pieces, b"")
    return Pieces(chain((first,), pieces), body.length)


def _joined(parts: Iterable[bytes]) -> Iterator[bytes]:
    held: list[bytes] = []
    size = 0
    for part in parts:
        if len(part) > 2 * PIECE:
            # One item of megabytes: copied whole it would hold up everybody else.
            yield b"".join(held)
            held.clear()
            size = 0
            view = memoryview(part)
            yield from (bytes(view[start : start + PIECE]) for start in range(0, len(part), PIECE))
            continue
        held.append(part)
        size += len(part)
        if size >= PIECE:
            yield b"".join(held)
            held.clear()
            size = 0
    yield b"".join(held)
