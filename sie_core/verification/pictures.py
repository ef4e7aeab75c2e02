"""Draws pictures of every mode without a library of images."""

from __future__ import annotations

import struct
import zlib
from base64 import b64decode
from collections.abc import Callable, Mapping
from typing import NamedTuple

Colour = tuple[int, int, int, int]
"""Red, green, blue and how opaque, 0 to 255."""
CLEAR = 0
"""The level, or the palette index, of the first columns, which `tRNS` of one level makes transparent."""

WEBP = b64decode("UklGRjgAAABXRUJQVlA4TCsAAAAvCwACEAYCAQoTTTTXhBIIEMKECRNYwFGNAGJNNNe/hApa6PQfdIYFdvgBAA==")
"""12 × 9 pixels; the transparent ones have distinct colours."""


class Mode(NamedTuple):
    """PNG's storage of a picture's pixels."""

    colour_type: int
    depth: int
    samples: Callable[[Colour], bytes]
    chunks: tuple[tuple[bytes, bytes], ...] = ()


def _gray(colour: Colour) -> bytes:
    return bytes((colour[0],))


PALETTE = (b"PLTE", bytes(value for index in range(256) for value in (index, 255 - index, index * 7 % 256)))
MODES: Mapping[str, Mode] = {
    "RGB": Mode(2, 8, lambda colour: bytes(colour[:3])),
    "RGBA": Mode(6, 8, bytes),
    "gray": Mode(0, 8, _gray),
    "gray with alpha": Mode(4, 8, lambda colour: bytes((colour[1], colour[3]))),
    "gray, black transparent": Mode(0, 8, _gray, ((b"tRNS", struct.pack(">H", CLEAR)),)),
    "gray of 16 bits": Mode(0, 16, lambda colour: struct.pack(">H", colour[0] * 256 + colour[1])),
    "palette": Mode(3, 8, _gray, (PALETTE,)),
    "palette, one colour transparent": Mode(3, 8, _gray, (PALETTE, (b"tRNS", bytes((CLEAR,))))),
    "palette with alpha": Mode(3, 8, _gray, (PALETTE, (b"tRNS", bytes(range(256))))),
    "RGBA of 16 bits": Mode(6, 16, lambda colour: struct.pack(">4H", *(257 * value for value in colour))),
}


def png(width: int, height: int, mode: str = "RGB") -> bytes:
    """Draw a colour gradient as a PNG file of that many pixels, less opaque towards the upper left.

    Args:
        width: Pixels of a row.
        height: Rows.
        mode: One of `MODES`.
    """
    kept = MODES[mode]
    rows = b"".join(
        b"\0" + b"".join(kept.samples(_colour(x, y, width, height)) for x in range(width)) for y in range(height)
    )
    header = struct.pack(">IIBBBBB", width, height, kept.depth, kept.colour_type, 0, 0, 0)
    chunks = ((b"IHDR", header), *kept.chunks, (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


def _colour(x: int, y: int, width: int, height: int) -> Colour:
    red = CLEAR if x < width // 4 else 255 * x // width
    return red, 255 * y // height, 128, 255 * (x + y) // (width + height)
