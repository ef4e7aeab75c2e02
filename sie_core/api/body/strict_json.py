"""Strict JSON: UTF-8, no NaN, no duplicate keys, bounded nesting, a bounded number of values."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import orjson

from sie_core.api.http.limits import MAX_BODY_NUMBERS, MAX_BODY_VALUES, MAX_JSON_DEPTH
from sie_core.contracts import InferenceError

_STRING_OR_BEGIN: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[,:\[{]', re.DOTALL)
"""A string, terminated or not, so that none is scanned twice; or the character before a value."""
WINDOW: Final = 2**16
"""Bytes of a body that one pass over it looks at: the copies and counts of a window stay in the processor's cache."""
_FEW_BYTES: Final = 2**15
"""Bytes of a piece up to which `bytes.count` is faster than NumPy."""
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
    """Parse `data` in one call of orjson, which holds the interpreter's lock: about 1 ms for each MB.

    Raises:
        InferenceError: `INVALID_INPUT`, with the line and column at fault; `RESOURCE_EXHAUSTED` without memory for it.
    """
    if data[: len(_BOM)] == _BOM:
        data = data[len(_BOM) :]
    if len(data) > MAX_BODY_VALUES and not _are_few(data):
        _refuse_many(data)
    try:
        parsed = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise _invalid(data, error) from None
    _refuse_lost_strings(data, parsed)
    return parsed


def _invalid(data: bytes | memoryview, error: orjson.JSONDecodeError) -> InferenceError:
    if error.msg.startswith(_NO_MEMORY):
        return InferenceError("RESOURCE_EXHAUSTED", "The server has no memory to read so large a body now.")
    place = _place_of(error, data)
    line, column = 1 + _count(memoryview(data)[:place], b"\n"), 1 + _characters_since_line(data, place)
    return InferenceError("INVALID_INPUT", f"The body is not valid JSON at line {line}, column {column}: {error.msg}.")


def _place_of(error: orjson.JSONDecodeError, data: bytes | memoryview) -> int:
    """Return at which byte of `data` it is wrong. The parser counts characters, and names none that is not UTF-8."""
    try:
        return len(str(data, "utf-8")[: error.pos].encode())
    except UnicodeDecodeError as wrong:
        return wrong.start


def contains(data: bytes | memoryview, found: bytes) -> bool:
    """Whether `found` stands anywhere in `data`."""
    return any(found in part for part in _slices(data, len(data), len(found) - 1))


def _slices(data: bytes | memoryview, stop: int, more: int = 0) -> Iterator[bytes]:
    """Cut what stands before `stop` into pieces on which one call takes little time, each with `more` of the next."""
    for start in range(0, stop, WINDOW):
        yield bytes(data[start : min(stop, start + WINDOW + more)])


def _characters_since_line(data: bytes | memoryview, stop: int) -> int:
    """Count the characters between the last line's beginning and `stop`."""
    count = 0
    for part in _slices(data, stop):
        line = part.rfind(b"\n") + 1
        count = len(part[line:].translate(None, _NOT_FIRST)) + (0 if line else count)
    return count


def _refuse_many(data: bytes | memoryview) -> None:
    """Refuse too many values before memory is spent on them: strings may hold commas and brackets too."""
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
    parts = range(0, len(codes), WINDOW)
    return sum(int(np.count_nonzero(codes[start : start + WINDOW] == character[0])) for start in parts)


def _too_many(what: str) -> InferenceError:
    return InferenceError("INVALID_INPUT", f"The body holds more than {what}; send several requests.")


def _refuse_lost_strings(data: bytes | memoryview, parsed: Any) -> None:
    """Refuse duplicate keys and too deep nesting.

    The parser keeps the last of two equal keys, so a document with duplicates has more strings than the parsed value.
    Counting the unescaped quotes of both is as fast as reading memory.
    """
    try:
        again = orjson.dumps(parsed)
    except orjson.JSONEncodeError:
        message = f"The body is nested deeper than {MAX_JSON_DEPTH} levels; flatten it."
        raise InferenceError("INVALID_INPUT", message) from None
    if _count(data, b"\\"):
        data, again = _unescaped(data), _unescaped(again)
    if _count(data, b'"') != _count(again, b'"'):
        raise _given_twice()


def _given_twice() -> InferenceError:
    return InferenceError("INVALID_INPUT", "The body gives a key of one JSON object twice; give each key once.")


def _unescaped(data: bytes | memoryview) -> bytes:
    return bytes(data).replace(b"\\\\", b"").replace(b'\\"', b"")
