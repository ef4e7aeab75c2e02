"""Strict JSON: UTF-8, no NaN, no duplicate keys, bounded nesting.

It knows no route and no schema.
"""

from __future__ import annotations

from typing import Any

import orjson

from sie_core.api.limits import MAX_JSON_DEPTH
from sie_core.contracts import InferenceError


def loads(data: bytes) -> Any:
    """Parse `data`.

    Raises:
        InferenceError: `INVALID_INPUT`, with the line and column at fault.
    """
    try:
        parsed = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise InferenceError("INVALID_INPUT", f"The body is not valid JSON at {where}: {error.msg}.") from None
    _refuse_lost_strings(data, parsed)
    return parsed


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
