"""Draws pictures without a library of images."""

from __future__ import annotations

import struct
import zlib


def png(width: int, height: int) -> bytes:
    """Draw a colour gradient as a PNG file of that many pixels."""
    rows = b"".join(
        b"\0" + bytes(value for x in range(width) for value in (255 * x // width, 255 * y // height, 128))
        for y in range(height)
    )
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
