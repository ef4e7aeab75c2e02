"""The client's side of a WebSocket that only listens (RFC 6455): the handshake, and frames out of bytes. No I/O."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator
from typing import Any, Final

from sie_sdk.errors import SIEConnectionError

TEXT, BINARY, CLOSE, PING, PONG, MORE = 0x1, 0x2, 0x8, 0x9, 0xA, 0x0
NORMAL: Final = (1000, 1001)
"""The codes of a server that has ended, or is about to."""
MOST_BYTES: Final = 1 << 26
"""Of a message."""


def handshake() -> dict[str, str]:
    """Make the headers that ask for a WebSocket."""
    key = base64.b64encode(os.urandom(16)).decode()
    return {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": key,
    }


class Frames:
    """What comes by one connection."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._message = bytearray()
        self.answers: list[bytes] = []
        """Frames to be sent to the server; whoever sends them empties it."""
        self.closed = False
        """Whether the server has said that it ends."""

    def take(self, data: bytes) -> Iterator[dict[str, Any]]:
        """Take bytes and yield the messages that are complete with them.

        Raises:
            SIEConnectionError: The connection ended without a close, with one for a fault, or brings no messages of
                JSON.
        """
        if not data:
            raise SIEConnectionError("the server broke the connection that is watched")
        self._buffer += data
        while not self.closed and (frame := self._frame()) is not None:
            final, kind, payload = frame
            if kind == CLOSE:
                self._close(payload)
            elif kind == PING:
                self.answers.append(_masked(PONG, payload))
            elif kind != PONG:
                self._message += payload
                if len(self._message) > MOST_BYTES:
                    raise SIEConnectionError(f"the server sends a message of more than {MOST_BYTES} bytes")
                if final:
                    message, self._message = bytes(self._message), bytearray()
                    yield _read(message)

    def _frame(self) -> tuple[bool, int, bytes] | None:
        """Take the first frame out of the buffer; None where it is not complete."""
        buffer = self._buffer
        if len(buffer) < 2:
            return None
        size, start = buffer[1] & 0x7F, 2
        if size > 125:
            wide = 2 if size == 126 else 8
            size, start = int.from_bytes(buffer[2 : 2 + wide], "big"), 2 + wide
            if len(buffer) < start:
                return None
        if size > MOST_BYTES:
            raise SIEConnectionError(f"the server sends a frame of {size} bytes, of which {MOST_BYTES} are taken")
        if len(buffer) < start + size:
            return None
        final, kind, payload = bool(buffer[0] & 0x80), buffer[0] & 0x0F, bytes(buffer[start : start + size])
        del buffer[: start + size]
        return final, kind, payload

    def _close(self, payload: bytes) -> None:
        self.closed = True
        self.answers.append(_masked(CLOSE, payload[:2]))
        code = int.from_bytes(payload[:2], "big") if len(payload) >= 2 else 1000
        if code not in NORMAL:
            reason = payload[2:].decode("utf-8", "replace")
            raise SIEConnectionError(f"the server ended what is watched: {reason or 'it does not say why'} ({code})")


def _masked(kind: int, payload: bytes) -> bytes:
    """Write a frame as clients must; control frames have 125 bytes at most."""
    mask = os.urandom(4)
    hidden = bytes(byte ^ mask[place % 4] for place, byte in enumerate(payload))
    return bytes((0x80 | kind, 0x80 | len(payload))) + mask + hidden


def _read(message: bytes) -> dict[str, Any]:
    try:
        told = json.loads(message)
    except ValueError:
        told = None
    if not isinstance(told, dict):
        raise SIEConnectionError("the server sends what is no JSON object")
    return told
