"""Requests inside every limit that once ended the server, or shut others out."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import orjson
from PIL import Image
from sie_sdk import wire

from tests.bench.processes.running import HOST
from tests.bench.processes.servers import MODEL
from tests.bench.workload.words import sentences

SIGHTED, MULTI, HANGING, EXTRACTOR = "attacks/sighted", "attacks/multi", "attacks/hanging", "attacks/extractor"
MANY_TEXTS, LONG_TEXT = 5000, 250
JSON, MSGPACK = "application/json", "application/msgpack"


@dataclass(frozen=True, slots=True)
class Sent:
    """One HTTP request, and the bytes of its body."""

    data: bytes
    body: int


@dataclass(frozen=True, slots=True)
class Attack:
    """What one client sends, again and again."""

    name: str
    make: Callable[[float], Sent]
    """Makes the request of a share of its full size, 0 to 1."""
    at_once: int = 1
    answers: frozenset[str] = frozenset({"200"})
    """Statuses that may come back."""
    pause_s: float = 0.0
    """Between an answer and the next request of a connection."""
    bytes_a_second: int | None = None
    """How fast replies are read; None as fast as they come."""
    models: tuple[str, ...] = field(default=())
    """What it asks for beside the default model."""


def request(path: str, body: bytes, form: str = JSON, accept: str = JSON, **headers: str) -> Sent:
    """Write an HTTP request."""
    told = {"Host": HOST, "Content-Type": form, "Accept": accept, "Content-Length": str(len(body)), **headers}
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in told.items())
    return Sent(f"POST {path} HTTP/1.1\r\n{lines}\r\n".encode() + body, len(body))


def _encode(model: str, items: list[Any], params: Mapping[str, Any] | None = None, **headers: str) -> Sent:
    body = {"items": items} | ({"params": params} if params else {})
    return request(f"/v1/encode/{model}", orjson.dumps(body), **headers)


def _texts(count: int, words: int) -> list[dict[str, str]]:
    random = np.random.default_rng(7)
    return [{"text": sentences(words, random)} for _ in range(count)]


def _many(full: int, share: float) -> int:
    return max(1, int(full * share))


def pixel() -> bytes:
    """Write a PNG of one pixel in 67 bytes."""
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)),
        (b"IDAT", zlib.compress(b"\0\0")),
        (b"IEND", b""),
    )
    made = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(made)


def scans(count: int) -> bytes:
    """Write a progressive JPEG whose last scan is repeated."""
    out = io.BytesIO()
    Image.effect_noise((64, 64), 60).convert("RGB").save(out, "JPEG", progressive=True)
    data = out.getvalue()
    last = data.rindex(b"\xff\xda")
    return data[:last] + data[last:-2] * count + b"\xff\xd9"


def _pictures(share: float) -> Sent:
    image = {"images": [{"data": pixel(), "format": "png"}]}
    body = wire.pack({"items": [image] * _many(16_384, share)})
    return request(f"/v1/encode/{SIGHTED}", body, MSGPACK, MSGPACK)


def _one_jpeg(share: float) -> Sent:
    body = wire.pack({"items": [{"images": [{"data": scans(6000), "format": "jpeg"}]}]})
    return request(f"/v1/encode/{SIGHTED}", body, MSGPACK, MSGPACK)


def _long_texts(share: float) -> Sent:
    text = sentences(20_000, np.random.default_rng(3)) + " "
    text = (text * (2 * 2**20 // len(text) + 1))[: 2 * 2**20 - 64]
    return _encode(MODEL, [{"text": text}] * _many(16, share))


def _multi_vectors(count: int, share: float = 1.0) -> Sent:
    return _encode(MULTI, _texts(_many(count, share), 200), {"output_types": ["multivector"]})


def _too_many(share: float) -> Sent:
    return _multi_vectors(3300)


def _entities(share: float) -> Sent:
    text = "a=b " * _many(131_073, share)
    return request(f"/v1/extract/{EXTRACTOR}", orjson.dumps({"items": [{"text": text}], "params": {"labels": ["a"]}}))


def _soon(share: float) -> Sent:
    return _encode(MODEL, _texts(8, 60), X_SIE_Timeout_Ms="2000")


def _never(share: float) -> Sent:
    return _encode(HANGING, [{"text": "a"}], Prefer="wait=999999")


def _bulk(count: int) -> Callable[[float], Sent]:
    return lambda share: _encode(MODEL, _texts(_many(count, share), LONG_TEXT), Accept=MSGPACK)


ATTACKS = (
    Attack("16,384 pictures of 67 bytes", _pictures, models=(SIGHTED,)),
    Attack("16 texts of 2 MB", _long_texts, at_once=2),
    Attack("a JPEG of 6,000 scans", _one_jpeg, at_once=2, answers=frozenset({"400"}), models=(SIGHTED,)),
    Attack("512 texts of 250 words", _bulk(512)),
    Attack("5,000 texts of 250 words", _bulk(MANY_TEXTS)),
    Attack("60 requests a second, a deadline of 2 s", _soon, 60, frozenset({"200", "503", "504"}), pause_s=1.0),
    # The fake gives such a load up after a minute; until the cooldown is over, who asks is told that it failed.
    Attack("a model that never loads, 520 at once", _never, at_once=520, answers=frozenset({"502", "503"})),
    Attack(
        "4 MB of texts as multi-vectors in JSON",
        lambda _: _multi_vectors(3300),
        answers=frozenset({"413"}),
        models=(MULTI,),
    ),
    Attack("multi-vectors in JSON, within the limit", partial(_multi_vectors, 880), models=(MULTI,)),
    Attack("the same, read slowly", partial(_multi_vectors, 880), bytes_a_second=2**20, models=(MULTI,)),
    Attack("131,073 entities", _entities, models=(EXTRACTOR,)),
)
"""By the model's own limits each is fine."""
