"""Writes JSON bodies that hold long lists, entry by entry: a large body piece by piece, as the client takes it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import orjson

from sie_core.api.body.pieces import Content, Pieces, in_pieces

# Bytes of values up to which one call of orjson writes the whole. It holds the interpreter's lock for 0.1 ms then.
SMALL: Final = 2**16
# Entries of a list that one call writes.
PART: Final = 1024


@dataclass(frozen=True, slots=True)
class Entries:
    """A long list in a value to be written; its entries are made as they are written."""

    made: Iterable[object]


def write_json(value: Any, size: int) -> Content:
    """Encode `value`, in which lists may be `Entries`; NumPy arrays in entries become lists of numbers.

    orjson holds the interpreter's lock during a call. Where the value is not small, one call per entry lets other
    threads, above all the event loop's, run in between.

    Args:
        value: Dicts, `Entries` in them, and what orjson encodes.
        size: About how many bytes the values of its entries have.
    """
    if size <= SMALL:
        return orjson.dumps(_whole(value), option=orjson.OPT_SERIALIZE_NUMPY)
    return in_pieces(Pieces(_parts(value)), size)


def _whole(value: Any) -> Any:
    if isinstance(value, Entries):
        return list(value.made)
    if not isinstance(value, dict):
        return value
    whole = dict(value)
    for name, each in value.items():
        if isinstance(each, Entries | dict):
            whole[name] = _whole(each)
    return whole


def _parts(value: Any) -> Iterator[bytes]:
    if isinstance(value, Entries):
        yield from _list(value)
    elif isinstance(value, dict) and any(isinstance(each, Entries | dict) for each in value.values()):
        start = b"{"
        for name, each in value.items():
            yield b"%s%s:" % (start, orjson.dumps(name))
            yield from _parts(each)
            start = b","
        yield b"}"
    else:
        yield orjson.dumps(value)


def _list(entries: Entries) -> Iterator[bytes]:
    start = b"["
    for entry in entries.made:
        yield start
        yield from _entry(entry)
        start = b","
    yield b"[]" if start == b"[" else b"]"


def _entry(entry: object) -> Iterator[bytes]:
    # An entry with long lists of its own, such as the entities of a long text, is written a part of a list at a time.
    if not isinstance(entry, dict) or not any(isinstance(each, list) and len(each) > PART for each in entry.values()):
        yield orjson.dumps(entry, option=orjson.OPT_SERIALIZE_NUMPY)
        return
    before = b"{"
    for name, value in entry.items():
        yield b"%s%s:" % (before, orjson.dumps(name))
        before = b","
        if not isinstance(value, list) or len(value) <= PART:
            yield orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
            continue
        for start in range(0, len(value), PART):
            part = orjson.dumps(value[start : start + PART], option=orjson.OPT_SERIALIZE_NUMPY)
            yield (b"," if start else b"[") + part[1:-1]
        yield b"]"
    yield b"}"
