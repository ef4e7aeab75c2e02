"""Strict JSON: UTF-8, no NaN, no duplicate keys, bounded nesting, a bounded number of values.

It knows no route and no schema.
"""

from __future__ import annotations

import re
from typing import Any, Final

import orjson

from sie_core.api.limits import MAX_BODY_VALUES, MAX_JSON_DEPTH
from sie_core.contracts import InferenceError

_STRING_OR_BEGIN: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[,:\[{]', re.DOTALL)
"""A string, ended or not, so that none is looked at twice; or what stands before a value."""
_QUOTE: Final = ord('"')


def loads(data: bytes) -> Any:
    """Parse `data`.

    Raises:
        InferenceError: `INVALID_INPUT`, with the line and column at fault.
    """
    _refuse_many(data)
    try:
        parsed = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise InferenceError("INVALID_INPUT", f"The body is not valid JSON at {where}: {error.msg}.") from None
    _refuse_lost_strings(data, parsed)
    return parsed


def _refuse_many(data: bytes) -> None:
    """Refuse too many values before memory is spent on them.

    Strings hold commas too, so that only texts with more commas than that are looked at closely.
    """
    if len(data) <= MAX_BODY_VALUES or sum(map(data.count, (b",", b":", b"[", b"{"))) <= MAX_BODY_VALUES:
        return
    left = MAX_BODY_VALUES
    for found in _STRING_OR_BEGIN.finditer(data):
        left -= data[found.start()] != _QUOTE
        if left < 0:
            message = f"The body holds more than {MAX_BODY_VALUES} values; send several requests."
            raise InferenceError("INVALID_INPUT", message)


def _refuse_lost_strings(data: bytes, parsed: Any) -> None:
    """Refuse duplicate keys and too deep nesting.

    The parser keeps the last of two equal keys, so a document with duplicates holds more strings than what was parsed
    from it. Counting both texts' unescaped quotes runs at the speed of memory.
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
