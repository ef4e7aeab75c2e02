"""Writes a long JSON list, or an object that holds one, entry by entry."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import orjson


def dump_list(entries: Iterable[object]) -> bytes:
    """Encode `[*entries]`; NumPy arrays become lists of numbers.

    orjson holds the interpreter's lock during a call. One call per entry lets other threads, above all the event
    loop's, run in between.
    """
    return b"[%s]" % b",".join([orjson.dumps(entry, option=orjson.OPT_SERIALIZE_NUMPY) for entry in entries])


def dump_with_list(fields: Mapping[str, Any], key: str, entries: Iterable[object]) -> bytes:
    """Encode `fields` with `[*entries]` in the place of `fields[key]`; see `dump_list`."""
    written = dump_list(entries)
    pieces = []
    for name, value in fields.items():
        pieces += [b",", orjson.dumps(name), b":", written if name == key else orjson.dumps(value)]
    return b"".join((b"{", *pieces[1:], b"}"))
