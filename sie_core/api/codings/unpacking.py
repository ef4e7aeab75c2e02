"""Unpacks the bodies of requests that `Content-Encoding` says are compressed."""

from __future__ import annotations

import zlib
from functools import partial
from typing import Final, Literal

import zstandard

from sie_core.api.http.limits import MAX_ZSTD_WINDOW
from sie_core.api.http.offload import LARGE, BodyThreads
from sie_core.contracts import InferenceError

Coding = Literal["gzip", "zstd"]

_CODINGS: Final[dict[str, Coding | None]] = {
    "": None,
    "identity": None,
    "gzip": "gzip",
    "x-gzip": "gzip",
    "zstd": "zstd",
}
MOST_MEMBERS: Final = 16
"""Members of a gzip body: each costs time even where it is empty, and clients write one."""
_GZIP: Final = 31
"""zlib's window of 32 KB, with gzip's header and trailer."""


def coding_of(content_encoding: str) -> Coding | None:
    """Tell how a body is compressed by its `Content-Encoding`, empty where there is none; None: it is not.

    Raises:
        InferenceError: `UNSUPPORTED_MEDIA_TYPE`: in a way that is not known, or in several.
    """
    try:
        return _CODINGS[content_encoding.strip().lower()]
    except KeyError:
        message = f"Content-Encoding {content_encoding[:40]!r} is not understood; send gzip, zstd or identity."
        raise InferenceError("UNSUPPORTED_MEDIA_TYPE", message) from None


async def unpacked(data: bytes | memoryview, coding: Coding, limit: int, threads: BodyThreads) -> bytes | None:
    """Unpack a body, a large one on a thread; None where it has more than `limit` bytes, which are not unpacked.

    Raises:
        InferenceError: `INVALID_INPUT`: the body is not so compressed.
    """
    if len(data) < LARGE:
        start = _unpacked(data, coding, LARGE)
        if len(start) < LARGE:
            return start if len(start) <= limit else None
    # Threads are few, so that few bodies are in memory that the gate does not yet count.
    whole = await threads.run(max(LARGE, len(data)), partial(_unpacked, data, coding, limit + 1))
    return whole if len(whole) <= limit else None


def _unpacked(data: bytes | memoryview, coding: Coding, most: int) -> bytes:
    """Return the first `most` bytes of a body."""
    try:
        if coding == "gzip":
            return _gunzipped(data, most)
        unpacking = zstandard.ZstdDecompressor(max_window_size=MAX_ZSTD_WINDOW)
        with unpacking.stream_reader(data, read_across_frames=True) as frames:
            return frames.read(most)
    except (OSError, EOFError, zlib.error, zstandard.ZstdError) as error:
        message = f"The body is not {coding}, as its Content-Encoding says: {error}."
        raise InferenceError("INVALID_INPUT", message, param="Content-Encoding") from None


def _gunzipped(data: bytes | memoryview, most: int) -> bytes:
    parts: list[bytes] = []
    rest, left = bytes(data), most
    for _ in range(MOST_MEMBERS):
        unpacking = zlib.decompressobj(_GZIP)
        part = unpacking.decompress(rest, left)
        parts.append(part)
        left -= len(part)
        if left > 0 and not unpacking.eof:
            raise EOFError("it ends too early")
        rest = unpacking.unused_data
        if left <= 0 or not rest:
            return b"".join(parts)
    raise OSError(f"it has more than {MOST_MEMBERS} members")
