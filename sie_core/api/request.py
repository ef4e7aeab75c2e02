"""What is known of a request beside ASGI's scope: its headers, decoded once, and its client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from starlette.datastructures import Headers

PEER: Final = "sie.peer"
"""The key of a request's scope with its `Peer`; absent under a server that knows nothing of it."""
HELD: Final = "sie.body_bytes"
"""The key of a request's scope with the number of bytes that the gate counts for it."""
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


class RequestHeaders(Headers):
    """The headers of a request, decoded once; the first of several of one name counts.

    Args:
        raw: Names in lower case, and values.
    """

    def __init__(self, raw: list[tuple[bytes, bytes]]) -> None:
        super().__init__(raw=raw)
        self._first: dict[str, str] = {}
        for name, value in raw:
            self._first.setdefault(name.decode("latin-1"), value.decode("latin-1"))

    def __contains__(self, key: object) -> bool:
        """Whether a header is there."""
        return isinstance(key, str) and key.lower() in self._first

    def __getitem__(self, key: str) -> str:
        """Return the first value of a header."""
        return self._first[key.lower()]

    def get(self, key: str, default: Any = None) -> Any:
        """Return the first value of a header, or the default."""
        return self._first.get(key.lower(), default)

    def getlist(self, key: str) -> list[str]:
        """Return every value of a header."""
        return super().getlist(key) if key.lower() in self._first else []
