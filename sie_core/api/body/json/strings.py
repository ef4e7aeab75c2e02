"""Parses a long JSON string a part at a time, and puts it where a short one stood for it.

A parser holds the interpreter's lock for a whole string: ten milliseconds for one of megabytes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import orjson

PART: Final = 2**16
"""Bytes of a string that one call of the parser sees."""

_WHOLE: Final = re.compile(
    rb"(?:[^\\]++|\\[^u]|\\u[0-9A-Fa-f]{4}(?<!\\u[dD][89abAB]..)|\\u[dD][89abAB]..\\u[dD][c-fC-F]..)*+", re.DOTALL
)
"""Escapes that are not cut, nor parted from the second half of their character."""
_CONTINUES: Final = range(0x80, 0xC0)
"""Bytes of UTF-8 that go on with a character."""


def parse(data: bytes | memoryview, start: int, stop: int) -> str:
    """Parse what stands between the quotes of a string.

    Args:
        data: The document.
        start: Where its inside begins.
        stop: Where its closing quote stands.

    Raises:
        orjson.JSONDecodeError: It is no string; `pos` is a place in `data`.
    """
    parts = []
    while start < stop:
        part = bytes(data[start : min(stop, start + PART)])
        if start + len(part) < stop:
            part = part[: _cut(part)]
        try:
            parts.append(orjson.loads(b'"%s"' % part))
        except orjson.JSONDecodeError as error:
            error.pos = start + max(0, place_of(error, b'"%s"' % part) - 1)
            raise
        start += len(part)
    return "".join(parts)


def place_of(error: orjson.JSONDecodeError, text: bytes) -> int:
    """Return at which byte of `text` it is wrong. The parser counts characters, and names none that is not UTF-8."""
    try:
        return len(text.decode()[: error.pos].encode())
    except UnicodeDecodeError as wrong:
        return wrong.start


def _cut(part: bytes) -> int:
    """Return where a part may end that others follow; where nothing else is found, it is wrong anywhere."""
    end = len(part)
    if b"\\" in part:
        found = _WHOLE.match(part)
        end = (found and found.end()) or end
    for place in range(end - 1, max(0, end - 4), -1):
        if part[place] not in _CONTINUES:
            return place if part[place] >= 0xC0 else end
    return end


def restored(parsed: Any, strings: Mapping[str, str]) -> Any:
    """Put strings for the short ones that stand for them, in lists and maps in place; return the whole.

    Raises:
        KeyError: A map has one of them twice as a key.
    """
    if isinstance(parsed, str):
        return strings.get(parsed, parsed)
    within = [parsed]
    while within:
        each = within.pop()
        if isinstance(each, dict) and not strings.keys().isdisjoint(each):
            _restore_keys(each, strings)
        for place, value in each.items() if isinstance(each, dict) else enumerate(each):
            if isinstance(value, str):
                if value in strings:
                    each[place] = strings[value]
            elif isinstance(value, list | dict):
                within.append(value)
    return parsed


def _restore_keys(fields: dict[str, Any], strings: Mapping[str, str]) -> None:
    entries = list(fields.items())
    fields.clear()
    fields.update((strings.get(key, key), value) for key, value in entries)
    if len(fields) < len(entries):
        raise KeyError
