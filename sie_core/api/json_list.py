"""Writes a JSON object that holds a long list, entry by entry. It knows no route."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import orjson


def dump_with_list(head: Mapping[str, Any], key: str, entries: Iterable[object]) -> bytes:
    """Encode `{**head, key: [*entries]}`; NumPy arrays become lists of numbers. `head` has a key, and not `key`.

    The encoder keeps the interpreter to itself for as long as a call of it takes. A call an entry lets other threads,
    the event loop's above all, run in between.
    """
    written = [orjson.dumps(entry, option=orjson.OPT_SERIALIZE_NUMPY) for entry in entries]
    return b"".join((orjson.dumps(head)[:-1], b",", orjson.dumps(key), b":[", b",".join(written), b"]}"))
