"""Decodes base64 text, a long one a part at a time: a call holds the interpreter's lock for 4 ms a megabyte."""

from __future__ import annotations

import base64
import re
from typing import Final

PART: Final = 2**18
"""Characters that one call decodes."""
_LINE_END: Final = "\r\n"
"""A blank is none: decoders of forms make blanks of `+`, which is a digit."""
_STANDARD: Final = bytes.maketrans(b"-_", b"+/")
"""From the alphabet of addresses to the standard one."""
_FOREIGN: Final = re.compile(r"[^A-Za-z0-9+/_\-\r\n]")


def decode_base64(text: str) -> bytes:
    """Decode base64 in the standard alphabet or that of addresses; padding may be missing, and lines may be wrapped.

    Raises:
        ValueError: It is no base64; the message says why.
    """
    digits = text.rstrip("=" + _LINE_END)
    padded = "".join(text[len(digits) :].split())
    parts, rest = [], b""
    for start in range(0, len(digits), PART):
        part = digits[start : start + PART]
        if foreign := _FOREIGN.search(part):
            raise ValueError(f"is no base64: character {start + foreign.start() + 1} is {foreign[0]!r}")
        rest += part.encode().translate(_STANDARD, _LINE_END.encode())
        whole = len(rest) - len(rest) % 4
        parts.append(base64.b64decode(rest[:whole], validate=True))
        rest = rest[whole:]
    padding = "=" * (-len(rest) % 4)
    if len(rest) == 1:
        raise ValueError("is no base64: its last group has one character, and needs two at least, so it was cut off")
    if padded not in ("", padding):
        raise ValueError(f"is no base64: it ends in {padded[:4]!r}, and its padding would be {padding!r}")
    parts.append(base64.b64decode(rest + padding.encode()))
    return b"".join(parts)
