"""httptools' parser, made to ignore the `Upgrade` header where the server grants no upgrade."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import httptools


class UpgradeIgnoringParser:
    """Reads requests and tells `protocol` of their parts, as `httptools.HttpRequestParser` does.

    Java's HttpClient asks for HTTP/2 with its first request. HTTP lets a server ignore that, but httptools stops after
    a head with `Upgrade` and leaves the body. So another parser reads the head once more, without that header.

    Args:
        protocol: Told of urls, headers and bodies; of `on_headers_complete` twice where an upgrade is ignored.
        head_without_upgrade: Writes the last head without `Upgrade`; returns None where the upgrade is granted.
    """

    def __init__(self, protocol: Any, head_without_upgrade: Callable[[], bytes | None]) -> None:
        self._protocol = protocol
        self._head_without_upgrade = head_without_upgrade
        self._read_by(_parser(protocol))

    def _read_by(self, parser: Any) -> None:
        self._parser = parser
        self.get_method: Callable[[], bytes] = parser.get_method
        self.get_http_version: Callable[[], str] = parser.get_http_version
        self.should_upgrade: Callable[[], bool] = parser.should_upgrade
        """Whether this request asks for another protocol."""
        self.should_keep_alive: Callable[[], bool] = parser.should_keep_alive
        """Whether the connection may stay open after this request."""

    def feed_data(self, data: bytes) -> None:
        """Parse more bytes.

        Raises:
            httptools.HttpParserError: The bytes are no HTTP.
            httptools.HttpParserUpgrade: The upgrade is granted.
            MemoryError: There is no memory for what they say; httptools itself tells it as bytes that are no HTTP.
        """
        while True:
            try:
                self._parser.feed_data(data)
                return
            except httptools.HttpParserCallbackError as failed:
                if isinstance(failed.__context__, MemoryError):
                    raise failed.__context__ from None
                raise
            except httptools.HttpParserUpgrade as upgrade:
                head = self._head_without_upgrade()
                if head is None:
                    raise
                self._read_by(_parser(self._protocol))
                data = head + data[upgrade.args[0] :]


def _parser(protocol: Any) -> Any:
    parser = httptools.HttpRequestParser(protocol)
    with contextlib.suppress(AttributeError):  # httptools before 0.6.3
        # As uvicorn has it: what follows a request with `Connection: close` does not fail that request.
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
    return parser
