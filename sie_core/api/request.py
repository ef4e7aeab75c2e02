"""The headers of a request, decoded once."""

from __future__ import annotations

from typing import Final

HELD: Final = "sie.body_bytes"
"""The key of a request's scope with the number of bytes that the gate counts for it."""
HEADERS: Final = "sie.headers"
"""The key of a request's scope with its `RequestHeaders`."""
CLIENT: Final = "sie.client"
"""The key of an admitted request's scope with the identity of its client, from `Callers`."""


class RequestHeaders(dict[str, str]):
    """The headers of a request by their names in lower case, decoded once; the first of several of one name counts.

    Args:
        raw: Names in lower case, and values.
    """

    def __init__(self, raw: list[tuple[bytes, bytes]]) -> None:
        self._raw = raw
        for name, value in reversed(raw):
            self[name.decode("latin-1")] = value.decode("latin-1")

    def getlist(self, name: str) -> list[str]:
        """Return every value of a header."""
        wanted = name.encode("latin-1")
        return [value.decode("latin-1") for each, value in self._raw if each == wanted]
