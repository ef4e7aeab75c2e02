"""The bodies of the three ways to ask for vectors, written and read."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

Vectors = NDArray[np.float32]

JSON = "application/json"
MSGPACK = "application/msgpack"


@dataclass(frozen=True, slots=True)
class Format:
    """One way to ask: where to, with which body, and how the vectors lie in the answer."""

    name: str
    path: Callable[[str], str]
    """The route for a model."""
    content_type: str
    write: Callable[[str, Sequence[str]], bytes]
    """Write the request for a model and texts."""
    read: Callable[[bytes], Vectors]
    """Read the `[texts, dims]` of an answer."""

    def request(self, host: str, model: str, texts: Sequence[str]) -> bytes:
        """Write the whole HTTP request."""
        body = self.write(model, texts)
        head = (
            f"POST {self.path(model)} HTTP/1.1\r\nHost: {host}\r\nContent-Type: {self.content_type}\r\n"
            f"Accept: {self.content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


def _openai(model: str, texts: Sequence[str], encoding: str) -> bytes:
    content: Any = texts[0] if len(texts) == 1 else list(texts)
    return orjson.dumps({"model": model, "input": content, "encoding_format": encoding})


def _write_float(model: str, texts: Sequence[str]) -> bytes:
    return _openai(model, texts, "float")


def _write_base64(model: str, texts: Sequence[str]) -> bytes:
    return _openai(model, texts, "base64")


def _write_msgpack(_: str, texts: Sequence[str]) -> bytes:
    from sie_sdk import wire

    return wire.pack({"items": [{"text": text} for text in texts]})


def _embeddings(body: bytes) -> list[Any]:
    return [entry["embedding"] for entry in sorted(orjson.loads(body)["data"], key=lambda entry: entry["index"])]


def _read_float(body: bytes) -> Vectors:
    return np.asarray(_embeddings(body), np.float32)


def _read_base64(body: bytes) -> Vectors:
    return np.stack([np.frombuffer(base64.b64decode(text), "<f4") for text in _embeddings(body)])


def _read_msgpack(body: bytes) -> Vectors:
    from sie_sdk import wire

    answer: Any = wire.unpack(body)
    return np.stack([item["dense"]["values"] for item in answer["items"]])


def _openai_path(_: str) -> str:
    return "/v1/embeddings"


def _encode_path(model: str) -> str:
    return f"/v1/encode/{model}"


FORMATS = {
    each.name: each
    for each in (
        Format("float", _openai_path, JSON, _write_float, _read_float),
        Format("base64", _openai_path, JSON, _write_base64, _read_base64),
        Format("msgpack", _encode_path, MSGPACK, _write_msgpack, _read_msgpack),
    )
}
