"""Cuts a large JSON document between the values of its lists and maps, so that it is parsed a piece at a time.

A parser holds the interpreter's lock for a whole call: tens of milliseconds for a body of 32 MB. Between two pieces
other threads run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import orjson

PIECE: Final = 2**17
"""Bytes of a piece, about; it may have a window and a string more."""
LONG: Final = 2**17
"""Bytes of a string that is parsed a part at a time."""
WINDOW: Final = 2**16
"""Bytes that one call of a regular expression looks at, 0.5 ms or less."""

_FLAT: Final = re.compile(rb'(?:[^"\[\]{}]++|"[^"\\]*+(?:\\.[^"\\]*+)*+")*+', re.DOTALL)
"""Whole strings, and what is neither string nor bracket."""
_TO_COMMA: Final = re.compile(rb'(?:[^",\[\]{}]++|"[^"\\]*+(?:\\.[^"\\]*+)*+")*+', re.DOTALL)
"""The same up to a comma."""
_COMMA: Final = re.compile(rb",[ \t\r\n]{0,64}+(?=[^ \t\r\n,:\]}])")
"""A comma and the space before a value."""
_TEXT: Final = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
"""The inside of a string."""
_SPACE: Final = 64
_CLOSING: Final = {ord("["): b"]", ord("{"): b"}"}


@dataclass(frozen=True, slots=True)
class Piece:
    """Whole values of a document, and maybe the beginning of lists and maps or their end."""

    start: int
    stop: int
    opened: bytes
    """The brackets that are open where it ends."""
    long: tuple[tuple[int, int], ...] = ()
    """Where the insides of its long strings begin and end; beyond the document where the quote after one is missing."""


def pieces(data: bytes | memoryview) -> Iterator[Piece]:
    """Cut `data`, at commas; what is no JSON may be cut anywhere, but some piece of it does not parse.

    The commas are left out. Before and after each stands a value: the parser of a piece would not miss it.
    """
    start = pos = 0
    opened = bytearray()
    long: list[tuple[int, int]] = []
    while True:
        pattern = _TO_COMMA if pos - start >= PIECE else _FLAT
        pos = _end(pattern, data, pos)
        if pos == len(data):
            break
        first = data[pos]
        if first == ord('"'):
            begin, end = pos + 1, _end_of_string(data, pos + 1)
            pos = min(len(data), end + 1)
            if end - begin >= LONG:
                long.append((begin, end))
        elif first in b"[{":
            opened.append(first)
            pos += 1
        elif first in b"]}":
            del opened[-1:]
            pos += 1
        elif first == ord(","):
            comma = _COMMA.match(data, pos)
            before = bytes(data[max(start, pos - _SPACE) : pos]).rstrip()[-1:]
            if comma is not None and opened and before not in b"[{":
                yield Piece(start, pos, bytes(opened), tuple(long))
                start = comma.end()
                long.clear()
            pos += 1
    yield Piece(start, len(data), b"", tuple(long))


def _end(pattern: re.Pattern[bytes], data: bytes | memoryview, pos: int) -> int:
    """Return where what matches at `pos` ends, within a window."""
    found = pattern.match(data, pos, pos + WINDOW)
    return pos if found is None else found.end()


def _end_of_string(data: bytes | memoryview, pos: int) -> int:
    """Return where the quote stands that ends a string whose inside goes on at `pos`; where none is, beyond `data`."""
    while part := bytes(data[pos : pos + WINDOW]):
        quote = part.find(b'"')
        escape = part.find(b"\\", 0, len(part) if quote < 0 else quote)
        if quote >= 0 and escape < 0:
            return pos + quote
        # What an escape covers the expression alone knows. It takes thirty times as long as `find`.
        end = len(part) if escape < 0 else _end(_TEXT, part, escape)
        if end < len(part) and part[end] == ord('"'):
            return pos + end
        if end == 0:  # the document ends in the middle of an escape
            break
        pos += end
    return len(data) + 1


def opening(whole: Any, opened: bytes) -> bytes:
    """Write the brackets and keys that lead to the innermost list or map open at the end of `whole`."""
    written = []
    for bracket in opened[:-1]:
        key = len(whole) - 1 if bracket == ord("[") else next(reversed(whole))
        written.append(b"[" if bracket == ord("[") else b"{%s:" % orjson.dumps(key))
        whole = whole[key]
    return b"".join((*written, opened[-1:]))


def closing(opened: bytes) -> bytes:
    """Write what ends the lists and maps that are open."""
    return b"".join(_CLOSING[bracket] for bracket in reversed(opened))


def extend(whole: Any, part: Any, opened: bytes) -> bool:
    """Add the values of the next piece to those before it; False if a map has a key twice.

    Args:
        whole: The value of the pieces so far. It is changed.
        part: That of the next one, within what `opening` wrote.
        opened: The brackets that were open between them.
    """
    for depth, bracket in enumerate(opened):
        goes_on = depth + 1 < len(opened)
        if bracket == ord("["):
            inner = part.pop(0) if goes_on else None
            last = len(whole) - 1
            whole.extend(part)
        else:
            last = next(reversed(whole))
            inner = part.pop(last) if goes_on else None
            if not whole.keys().isdisjoint(part):
                return False
            whole.update(part)
        if goes_on:
            whole, part = whole[last], inner
    return True
