"""The parts of image files, counted before a decoder sees them: each costs time, however few pixels there are.

A progressive JPEG passes over all its pixels once per scan. Pillow reads the chunks of a PNG, the blocks of a GIF and
the segments of a JPEG one by one, in Python.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from sie_core.contracts import MAX_IMAGE_PARTS, MAX_IMAGE_SCANS

_MARKER = re.compile(rb"\xff+([^\x00\xff\xd0-\xd7])")
"""A JPEG marker; in the data of a scan 0xFF is followed by zero, and restart markers stand there too."""
_SCAN, _END, _ALONE = 0xDA, 0xD9, frozenset({0x01, 0xD8})
_EXTENSION, _IMAGE = 0x21, 0x2C
_MOST_EXTENSIONS = 2**12
"""Bound on the sub-blocks of a GIF's comments and other extensions: Pillow copies the comment so far with each."""


def too_many(data: bytes) -> str | None:
    """Report that a file has too many parts; damaged files are left to the decoder."""
    return next((count(data) for magic, count in _COUNTERS.items() if data.startswith(magic)), None)


def _jpeg(data: bytes) -> str | None:
    at = scans = parts = 0
    while (found := _MARKER.search(data, at)) is not None:
        marker, at = found[1][0], found.end()
        parts += 1
        scans += marker == _SCAN
        if scans > MAX_IMAGE_SCANS:
            return f"has more than {MAX_IMAGE_SCANS} scans"
        if parts > MAX_IMAGE_PARTS:
            return f"has more than {MAX_IMAGE_PARTS:,} segments"
        if marker == _END:
            break
        if marker not in _ALONE:
            at += max(2, int.from_bytes(data[at : at + 2]))
    return None


def _png(data: bytes) -> str | None:
    at, parts = 8, 0
    while at + 8 <= len(data) and data[at + 4 : at + 8] != b"IEND":
        at += 12 + int.from_bytes(data[at : at + 4])
        parts += 1
        if parts > MAX_IMAGE_PARTS:
            return f"has more than {MAX_IMAGE_PARTS:,} chunks"
    return None


def _gif(data: bytes) -> str | None:
    # Pillow reads up to the second picture to learn whether it exists.
    at, images, extensions, blocks = 13 + _colours(data, 10), 0, 0, 0
    while at < len(data) and data[at] in (_EXTENSION, _IMAGE) and images < 2:
        is_image = data[at] == _IMAGE
        images += is_image
        at += 11 + _colours(data, at + 9) if is_image else 2
        while at < len(data) and data[at]:
            at += 1 + data[at]
            blocks += 1
            extensions += not is_image
            if blocks > 4 * MAX_IMAGE_PARTS or extensions > _MOST_EXTENSIONS:
                return f"has more than {_MOST_EXTENSIONS:,} blocks beside its picture, or {4 * MAX_IMAGE_PARTS:,} of it"
        at += 1
    return None


def _colours(data: bytes, at: int) -> int:
    # The bytes of the colour table that the flags at `at` announce.
    flags = data[at] if at < len(data) else 0
    return 3 << ((flags & 7) + 1) if flags & 0x80 else 0


_COUNTERS: Mapping[bytes, Callable[[bytes], str | None]] = {b"\xff\xd8": _jpeg, b"\x89PNG": _png, b"GIF8": _gif}
