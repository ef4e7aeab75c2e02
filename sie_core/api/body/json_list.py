"""Writes a long JSON list, or an object that holds one, entry by entry. It knows no route."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import orjson


def dump_list(entries: Iterable[object]) -> bytes:
    """Encode `[*entries]`; NumPy arrays become lists of numbers.

    The encoder keeps the interpreter to itself for as long as a call of it takes. A call an entry lets other threads,
    the event loop's above all, run in between.
    """
    return b"[%s]" % b",".join([orjson.dumps(entry, option=orjson.OPT_SERIALIZE_NUMPY) for entry in entries])


def dump_with_list(fields: Mapping[str, Any], key: str, entries: Iterable[object]) -> bytes:
    """Encode `fields` with `[*entries]` in the place of `fields[key]`; see `dump_list`."""
    written = dump_list(entries)
    pieces = []
    for name, value in fields.items():
        pieces += [b",", orjson.dumps(name), b":", written if name == key else orjson.dumps(value)]
    return b"".join((b"{", *pieces[1:], b"}"))
