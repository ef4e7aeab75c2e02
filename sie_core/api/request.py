"""What is known of a request beside ASGI's scope: its headers, decoded once, and its client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

PEER: Final = "sie.peer"
"""The key of a request's scope with its `Peer`; absent under a server that knows nothing of it."""
HEADERS: Final = "sie.headers"
"""The key of a request's scope with its `RequestHeaders`."""


class Peer(Protocol):
    """The client of one request, as its connection knows it."""

    def whole_body(self) -> bytes | None:
        """Take the body where all of it has come; None where the rest, or all of it, is to be received."""
        ...

    def on_leave(self, call: Callable[[], None] | None) -> None:
        """Have `call` called when the client leaves, at once where it has; None: nothing any more."""
        ...


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
