"""What an HTTP header can carry: checked here, as HTTP libraries print the value that they refuse."""

from __future__ import annotations

import re

_VALUE = re.compile(r"[!-~]+(?:[ \t]+[!-~]+)*|")


def checked(name: str, value: str) -> str:
    """Return the value of a header. An error tells `name` alone: the argument or the variable that it comes from.

    Raises:
        ValueError: It is not printable ASCII, or begins or ends in a blank or a line break.
        TypeError: It is no string.
    """
    if not isinstance(value, str):
        raise TypeError(f"{name} is a {type(value).__name__}; give a string")
    if _VALUE.fullmatch(value):
        return value
    if _VALUE.fullmatch(value.strip()):
        raise ValueError(f"{name} begins or ends in a blank or a line break, which no HTTP header can carry; strip it")
    raise ValueError(f"{name} holds a character that no HTTP header can carry; printable ASCII is allowed")
