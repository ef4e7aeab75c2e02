"""httptools' parser, for which a wish for another protocol (`Upgrade`) is no end of HTTP.

It must not know connections.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import httptools


class WishlessParser:
    """Reads requests and tells `protocol` of their parts, as `httptools.HttpRequestParser` does.

    Java's HttpClient wishes for HTTP/2 with its first request. HTTP lets a server pass such a wish over, but the parser
    stops behind a head that has one and leaves the body. So the head is read once more, by another parser, without it.

    Args:
        protocol: Told of urls, headers, bodies; `on_headers_complete` twice where there is a wish.
        head_without_wish: Writes the head that was read last without its wish; None where the wish is granted.
    """

    def __init__(self, protocol: Any, head_without_wish: Callable[[], bytes | None]) -> None:
        self._protocol = protocol
        self._head_without_wish = head_without_wish
        self._parser = _parser(protocol)

    def feed_data(self, data: bytes) -> None:
        """Read on.

        Raises:
            httptools.HttpParserError: It is no HTTP.
            httptools.HttpParserUpgrade: A wish that is granted.
        """
        while True:
            try:
                self._parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as wish:
                head = self._head_without_wish()
                if head is None:
                    raise
                self._parser = _parser(self._protocol)
                data = head + data[wish.args[0] :]

    def get_http_version(self) -> str:
        """Return `1.1` or `1.0`."""
        return str(self._parser.get_http_version())

    def get_method(self) -> bytes:
        """Return the method of this request."""
        return bytes(self._parser.get_method())

    def should_upgrade(self) -> bool:
        """Whether this request wishes for another protocol."""
        return bool(self._parser.should_upgrade())

    def should_keep_alive(self) -> bool:
        """Whether the connection may stay open after this request."""
        return bool(self._parser.should_keep_alive())


def _parser(protocol: Any) -> Any:
    parser = httptools.HttpRequestParser(protocol)
    with contextlib.suppress(AttributeError):  # httptools before 0.6.3
        # As uvicorn has it: what follows a request with `Connection: close` does not fail that request.
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
    return parser
