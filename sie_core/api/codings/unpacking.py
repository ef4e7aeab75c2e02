"""Unpacks the bodies of requests that `Content-Encoding` says are compressed."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import partial
from typing import Final, Literal, Protocol

from sie_core.api.codings.zstd import DecompressionParameter, ZstdDecompressor, ZstdError
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
"""Members of a gzip body, frames of a zstd one: each costs time even where it is empty, and clients write one."""
_GZIP: Final = 31
"""zlib's window of 32 KB, with gzip's header and trailer."""


class _Member(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes | memoryview, max_length: int, /) -> bytes: ...


_MEMBERS: Final[dict[Coding, Callable[[], _Member]]] = {
    "gzip": partial(zlib.decompressobj, _GZIP),
    "zstd": partial(
        ZstdDecompressor, options={DecompressionParameter.window_log_max: MAX_ZSTD_WINDOW.bit_length() - 1}
    ),
}


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
        return _first(data, _MEMBERS[coding], most)
    except (OSError, EOFError, zlib.error, ZstdError) as error:
        message = f"The body is not {coding}, as its Content-Encoding says: {error}."
        raise InferenceError("INVALID_INPUT", message, param="Content-Encoding") from None


def _first(data: bytes | memoryview, member: Callable[[], _Member], most: int) -> bytes:
    parts: list[bytes] = []
    rest, left = data, most
    for _ in range(MOST_MEMBERS):
        unpacking = member()
        part = unpacking.decompress(rest, left)
        parts.append(part)
        left -= len(part)
        if left > 0 and not unpacking.eof:
            raise EOFError("it ends too early")
        if left <= 0 or not unpacking.unused_data:
            return b"".join(parts)
        rest = unpacking.unused_data
    raise OSError(f"it has more than {MOST_MEMBERS} members")
