"""Decodes base64 text, a long one a part at a time: a call holds the interpreter's lock for 4 ms a megabyte."""

from __future__ import annotations

import base64
import binascii
from typing import Final

PART: Final = 2**18
"""Characters that one call decodes: a multiple of four."""


def decode_base64(text: str) -> bytes:
    """Decode standard base64.

    Raises:
        binascii.Error: It is no base64.
        ValueError: It has characters beyond ASCII.
    """
    if not text.isascii():
        raise ValueError("must be standard base64 text, which is ASCII")
    if text.find("=", 0, len(text) - 2) >= 0:
        raise binascii.Error("padding before the end")
    parts = [base64.b64decode(text[start : start + PART], validate=True) for start in range(0, len(text), PART)]
    return parts[0] if len(parts) == 1 else b"".join(parts)
