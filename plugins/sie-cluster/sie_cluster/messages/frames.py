"""The frame of every message: a small head that is read on its own, then sections of bytes that are not.

    "SIE" | version, 1 byte | sections, 1 byte | length of head and of each section, 4 bytes each | head | sections

Lengths are big-endian; the head is a msgpack map. A sidecar reads heads and passes the sections on unread.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, TypeVar

import numpy as np
from pydantic import TypeAdapter, ValidationError
from sie_sdk.wire import WireError, pack, unpack

VERSION = 1
MAGIC = b"SIE"
MOST_HEAD_BYTES = 1 << 16
MOST_HEAD_VALUES = 4096
MOST_SECTIONS = 4
LARGE_BYTES = 1 << 20
"""Of a frame from which on its pieces are not joined: to copy megabytes holds up everybody else."""
Pieces = tuple[bytes | memoryview, ...]
"""A frame in one piece or, where it is large, in those it was made of."""
_START = struct.Struct("!3sBB")
_BEGINNINGS = [struct.Struct(f"!3sBB{1 + sections}I") for sections in range(MOST_SECTIONS + 1)]
"""All that stands before the head, by the number of sections."""


T = TypeVar("T")


class FrameError(ValueError):
    """Bytes that are no frame, or one of another version; the message names what is wrong and holds nothing of them."""


class NewerFrame(FrameError):
    """Bytes that a newer release wrote, which this one cannot read; a process of that release can."""


def wrong(error: ValidationError) -> FrameError:
    """Make the error of a value that has not the type it should have; names its first wrong field."""
    first = error.errors(include_url=False, include_input=False)[0]
    return FrameError(f"{'.'.join(map(str, first['loc']))[:100]!r}: {first['msg'][:200]}")


def read_as(reader: TypeAdapter[T], packed: bytes | memoryview, what: str, most: int | None = None) -> T:
    """Read a packed value of a type; fields that a newer release knows are passed over.

    Args:
        reader: Of the type.
        packed: The value.
        what: What it is called in an error.
        most: Of the values in it; None for any number.

    Raises:
        FrameError: It is none.
    """
    try:
        return reader.validate_python(unpack(packed, most=most))
    except WireError as error:
        raise FrameError(f"{what} cannot be read: {error}") from None
    except ValidationError as error:
        raise wrong(error) from None


def encode(head: Mapping[str, Any], sections: Sequence[bytes | memoryview] = ()) -> bytes:
    """Write a frame.

    Raises:
        FrameError: The head is beyond `MOST_HEAD_BYTES`, or there are too many sections.
    """
    return b"".join((*_beginning(head, [len(section) for section in sections]), *sections))


def encode_pieces(head: Mapping[str, Any], sections: Sequence[Sequence[bytes | memoryview]]) -> Pieces:
    """Write a frame of sections that are in pieces; those of a large one are not copied.

    Raises:
        FrameError: As `encode`.
    """
    lengths = [size_of(section) for section in sections]
    pieces = (*_beginning(head, lengths), *chain.from_iterable(sections))
    return pieces if sum(lengths) >= LARGE_BYTES else (b"".join(pieces),)


def size_of(pieces: Sequence[bytes | memoryview]) -> int:
    """Count the bytes of pieces."""
    return sum(map(len, pieces))


def cut_pieces(pieces: Sequence[bytes | memoryview], start: int, stop: int) -> Iterator[memoryview]:
    """Yield views of the bytes of pieces from `start` to `stop`."""
    for piece in pieces:
        if start < len(piece) and stop > 0:
            yield memoryview(piece)[max(0, start) : stop]
        start, stop = start - len(piece), stop - len(piece)


def room_for(size: int) -> memoryview:
    """Take memory as it is: to clear megabytes that are overwritten anyway holds up everybody else."""
    return np.empty(size, np.uint8).data


def _beginning(head: Mapping[str, Any], lengths: Sequence[int]) -> tuple[bytes, bytes]:
    packed = pack(head)
    if len(packed) > MOST_HEAD_BYTES:
        raise FrameError(f"a head of {len(packed)} bytes is beyond {MOST_HEAD_BYTES}")
    if len(lengths) > MOST_SECTIONS:
        raise FrameError(f"{len(lengths)} sections are beyond {MOST_SECTIONS}")
    return _BEGINNINGS[len(lengths)].pack(MAGIC, VERSION, len(lengths), len(packed), *lengths), packed


def read_head(frame: bytes | memoryview) -> dict[str, Any]:
    """Read the head alone; lengths are checked, the sections are not touched.

    Raises:
        FrameError: It is no frame of this version.
    """
    return _head(frame, _lengths(frame))


def decode(frame: bytes | memoryview) -> tuple[dict[str, Any], list[memoryview]]:
    """Read the head, and the sections as views of the frame.

    Raises:
        FrameError: It is no frame of this version.
    """
    lengths = _lengths(frame)
    return _head(frame, lengths), _sections(frame, lengths)


def sections_of(frame: bytes | memoryview) -> list[memoryview]:
    """Give the sections as views of the frame; the head is not read.

    Raises:
        FrameError: It is no frame of this version.
    """
    return _sections(frame, _lengths(frame))


def _sections(frame: bytes | memoryview, lengths: Sequence[int]) -> list[memoryview]:
    view = memoryview(frame)
    sections, start = [], _BEGINNINGS[len(lengths) - 1].size + lengths[0]
    for length in lengths[1:]:
        sections.append(view[start : start + length])
        start += length
    return sections


def _lengths(frame: bytes | memoryview) -> tuple[int, ...]:
    """Read and check the length of the head and of each section."""
    if len(frame) < _START.size:
        raise FrameError(f"a frame of {len(frame)} bytes is cut short")
    magic, version, sections = _START.unpack_from(frame)
    if magic != MAGIC:
        raise FrameError("the bytes do not begin as a frame does")
    if version > VERSION:
        raise NewerFrame(f"version {version} is newer than {VERSION}, which this process reads; upgrade it")
    if version != VERSION:
        raise FrameError(f"version {version} is not {VERSION}, which this process reads; run one release everywhere")
    if sections > MOST_SECTIONS:
        raise FrameError(f"{sections} sections are beyond {MOST_SECTIONS}")
    start = _BEGINNINGS[sections]
    if len(frame) < start.size:
        raise FrameError(f"a frame of {len(frame)} bytes is cut short")
    lengths: tuple[int, ...] = start.unpack_from(frame)[3:]
    if lengths[0] > MOST_HEAD_BYTES:
        raise FrameError(f"a head of {lengths[0]} bytes is beyond {MOST_HEAD_BYTES}")
    if (wanted := start.size + sum(lengths)) != len(frame):
        raise FrameError(f"the lengths say {wanted} bytes, and the frame has {len(frame)}")
    return lengths


def _head(frame: bytes | memoryview, lengths: Sequence[int]) -> dict[str, Any]:
    start = _BEGINNINGS[len(lengths) - 1].size
    try:
        head = unpack(memoryview(frame)[start : start + lengths[0]], most=MOST_HEAD_VALUES)
    except WireError as error:
        raise FrameError(f"the head cannot be read: {error}") from None
    if not isinstance(head, dict):
        raise FrameError("the head is no map")
    return head
