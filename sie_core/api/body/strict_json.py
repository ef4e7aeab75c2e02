"""Strict JSON: UTF-8, no NaN, no duplicate keys, bounded nesting, a bounded number of values."""

from __future__ import annotations

import re
from typing import Any, Final

import orjson

from sie_core.api.http.limits import MAX_BODY_NUMBERS, MAX_BODY_VALUES, MAX_JSON_DEPTH
from sie_core.contracts import InferenceError

_STRING_OR_BEGIN: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[,:\[{]', re.DOTALL)
"""A string, terminated or not, so that none is scanned twice; or the character before a value."""
_NO_MEMORY: Final = "Not enough memory"
"""How orjson begins to say so: it knows one exception for all that can fail."""
_QUOTE: Final = ord('"')
_OBJECTS: Final = b'"[{'
"""The characters with which texts, keys, lists and maps begin."""


def loads(data: bytes) -> Any:
    """Parse `data`.

    Raises:
        InferenceError: `INVALID_INPUT`, with the line and column at fault; `RESOURCE_EXHAUSTED` without memory for it.
    """
    _refuse_many(data)
    try:
        parsed = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        if error.msg.startswith(_NO_MEMORY):
            raise InferenceError(
                "RESOURCE_EXHAUSTED", "The server has no memory to read so large a body now."
            ) from None
        where = f"line {error.lineno}, column {error.colno}"
        raise InferenceError("INVALID_INPUT", f"The body is not valid JSON at {where}: {error.msg}.") from None
    _refuse_lost_strings(data, parsed)
    return parsed


def _refuse_many(data: bytes) -> None:
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


def _are_few(data: bytes) -> bool:
    """Whether there are few enough even where the characters inside strings are counted."""
    nested = data.count(b"[") + data.count(b"{")
    values = nested + data.count(b",") + data.count(b":")
    objects = nested + (data.count(b'"') + 1) // 2
    return values <= MAX_BODY_VALUES or (values <= MAX_BODY_NUMBERS and objects <= MAX_BODY_VALUES)


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
        raise InferenceError("INVALID_INPUT", "The body gives a key of one JSON object twice; give each key once.")


def _quotes(data: bytes) -> int:
    if b"\\" in data:
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    return data.count(b'"')
