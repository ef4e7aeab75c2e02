"""Strict JSON: UTF-8, no NaN, no duplicate keys, bounded nesting, a bounded number of values."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import orjson

from sie_core.api.body.json import pieces, strings
from sie_core.api.body.json.pieces import Piece
from sie_core.api.http.limits import MAX_BODY_NUMBERS, MAX_BODY_VALUES, MAX_JSON_DEPTH
from sie_core.contracts import InferenceError

_STRING_OR_BEGIN: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[,:\[{]', re.DOTALL)
"""A string, terminated or not, so that none is scanned twice; or the character before a value."""
_FEW_BYTES: Final = 2**15
_BOM: Final = b"\xef\xbb\xbf"
"""What some editors and .NET write before UTF-8."""
_NOT_FIRST: Final = bytes(range(0x80, 0xC0))
"""The bytes of UTF-8 that begin no character."""
_NO_MEMORY: Final = "Not enough memory"
"""How orjson begins to say so: it knows one exception for all that can fail."""
_QUOTE: Final = ord('"')
_OBJECTS: Final = b'"[{'
"""The characters with which texts, keys, lists and maps begin."""


def loads(data: bytes | memoryview) -> Any:
    """Parse `data`, a large one piece by piece, so that others get the interpreter's lock in between.

    Raises:
        InferenceError: `INVALID_INPUT`, with the line and column at fault; `RESOURCE_EXHAUSTED` without memory for it.
    """
    if data[: len(_BOM)] == _BOM:
        data = data[len(_BOM) :]
    if len(data) <= pieces.PIECE:
        return _parsed(data, Piece(0, len(data), b""), b"", {})
    _refuse_many(data)
    parsed: Any = None
    opened = b""
    name = os.urandom(8).hex()  # no client can write a string that is taken for another
    for piece in pieces.pieces(data):
        long = {f"{name}{number}": inside for number, inside in enumerate(piece.long)}
        part = _parsed(data, piece, pieces.opening(parsed, opened), long)
        if not opened:
            parsed = part
        elif not pieces.extend(parsed, part, opened):
            raise _given_twice()
        opened = piece.opened
    return parsed


def _parsed(data: bytes | memoryview, piece: Piece, before: bytes, long: Mapping[str, tuple[int, int]]) -> Any:
    """Parse a piece of `data` with `before` written before it; names stand for its long strings meanwhile."""
    text = _text(data, piece, before, long)
    try:
        parsed = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        place = piece.start + strings.place_of(error, text) - len(before)
        for named, (start, stop) in long.items():
            if start <= place:
                place += stop - start - len(named)
        raise _invalid(data, max(piece.start, place), error) from None
    _refuse_lost_strings(text, parsed)
    if not long:
        return parsed
    try:
        return strings.restored(parsed, _long_strings(data, long))
    except KeyError:
        raise _given_twice() from None


def _text(data: bytes | memoryview, piece: Piece, before: bytes, long: Mapping[str, tuple[int, int]]) -> bytes:
    parts: list[bytes | memoryview] = [before]
    at = piece.start
    for name, (start, stop) in long.items():
        parts += (data[at:start], name.encode())
        at = stop
    return b"".join((*parts, data[at : piece.stop], pieces.closing(piece.opened)))


def _long_strings(data: bytes | memoryview, long: Mapping[str, tuple[int, int]]) -> dict[str, str]:
    try:
        return {name: strings.parse(data, start, stop) for name, (start, stop) in long.items()}
    except orjson.JSONDecodeError as error:
        raise _invalid(data, error.pos, error) from None


def _invalid(data: bytes | memoryview, place: int, error: orjson.JSONDecodeError) -> InferenceError:
    if error.msg.startswith(_NO_MEMORY):
        return InferenceError("RESOURCE_EXHAUSTED", "The server has no memory to read so large a body now.")
    line, column = 1 + _count(memoryview(data)[:place], b"\n"), 1 + _characters_since_line(data, place)
    return InferenceError("INVALID_INPUT", f"The body is not valid JSON at line {line}, column {column}: {error.msg}.")


def contains(data: bytes | memoryview, found: bytes) -> bool:
    """Whether `found` stands anywhere in `data`."""
    return any(found in part for part in _slices(data, len(data), len(found) - 1))


def _slices(data: bytes | memoryview, stop: int, more: int = 0) -> Iterator[bytes]:
    """Cut what stands before `stop` into pieces on which one call takes little time, each with `more` of the next."""
    for start in range(0, stop, pieces.WINDOW):
        yield bytes(data[start : min(stop, start + pieces.WINDOW + more)])


def _characters_since_line(data: bytes | memoryview, stop: int) -> int:
    """Count the characters between the last line's beginning and `stop`."""
    count = 0
    for part in _slices(data, stop):
        line = part.rfind(b"\n") + 1
        count = len(part[line:].translate(None, _NOT_FIRST)) + (0 if line else count)
    return count


def _refuse_many(data: bytes | memoryview) -> None:
    """Refuse too many values before memory is spent on them.

    Strings may hold commas and brackets too, so that only texts with too many of them are scanned in full.
    """
    if len(data) <= MAX_BODY_VALUES or _are_few(data):
        return
    objects, values = MAX_BODY_VALUES, MAX_BODY_NUMBERS
    for found in _STRING_OR_BEGIN.finditer(data):
        first = data[found.start()]
        objects -= first in _OBJECTS
        values -= first != _QUOTE
        if objects < 0:
            raise _too_many(f"{MAX_BODY_VALUES} texts, keys, lists and maps")
        if values < 0:
            raise _too_many(f"{MAX_BODY_NUMBERS} values")


def _are_few(data: bytes | memoryview) -> bool:
    """Whether there are few enough even where the characters inside strings are counted."""
    nested = _count(data, b"[") + _count(data, b"{")
    values = nested + _count(data, b",") + _count(data, b":")
    objects = nested + (_count(data, b'"') + 1) // 2
    return values <= MAX_BODY_VALUES or (values <= MAX_BODY_NUMBERS and objects <= MAX_BODY_VALUES)


def _count(data: bytes | memoryview, character: bytes) -> int:
    """Count a character; in many bytes NumPy takes a third of the time, and releases the interpreter's lock."""
    if len(data) <= _FEW_BYTES:
        return bytes(data).count(character)
    codes = np.frombuffer(data, np.uint8)
    parts = range(0, len(codes), pieces.WINDOW)
    return sum(int(np.count_nonzero(codes[start : start + pieces.WINDOW] == character[0])) for start in parts)


def _too_many(what: str) -> InferenceError:
    return InferenceError("INVALID_INPUT", f"The body holds more than {what}; send several requests.")


def _refuse_lost_strings(data: bytes, parsed: Any) -> None:
    """Refuse duplicate keys and too deep nesting.

    The parser keeps the last of two equal keys, so a document with duplicates has more strings than the parsed value.
    Counting the unescaped quotes of both is as fast as reading memory.
    """
    try:
        again = orjson.dumps(parsed)
    except orjson.JSONEncodeError:
        message = f"The body is nested deeper than {MAX_JSON_DEPTH} levels; flatten it."
        raise InferenceError("INVALID_INPUT", message) from None
    if _quotes(data) != _quotes(again):
        raise _given_twice()


def _given_twice() -> InferenceError:
    return InferenceError("INVALID_INPUT", "The body gives a key of one JSON object twice; give each key once.")


def _quotes(data: bytes) -> int:
    if b"\\" in data:
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    return _count(data, b'"')
