"""Takes messages off a connection as their bytes arrive; nats-py's parser handles everything else.

In nats-py, a task reads into a buffer and a coroutine parses it one turn of the event loop later. That copies a large
message five times; here it is copied once, when its last bytes arrive.
"""

from __future__ import annotations

from collections.abc import Callable, Container

CRLF = b"\r\n"
Hand = Callable[[int, bytes, bytes, bytes, bytes | None], None]
"""Takes a message: the number of its subscription, subject, reply, payload and headers."""
_Line = tuple[int, bytes, bytes, int, int]
"""The first line of a message: number, subject, reply, bytes of the headers, bytes of headers and payload."""


class MessageReader:
    """Parses a connection's bytes.

    Args:
        others: Takes the bytes that are no complete message to one of `numbers`.
        idle: Whether `others` is between two protocol messages; otherwise it gets all bytes.
        numbers: Ids of the subscriptions whose messages are taken.
        hand: Receives the messages.
    """

    def __init__(
        self, others: Callable[[bytes], None], idle: Callable[[], bool], numbers: Container[int], hand: Hand
    ) -> None:
        self._others, self._idle, self._numbers, self._hand = others, idle, numbers, hand
        self._begun: _Line | None = None
        """The first line of an incomplete message."""
        self._parts: list[bytes] = []
        """Its bytes so far, after that line."""
        self._missing = 0

    def feed(self, data: bytes) -> None:
        """Take bytes as they come."""
        if self._begun is not None:
            if len(data) < self._missing:
                self._parts.append(data)
                self._missing -= len(data)
                return
            data = self._end(self._begun, data)
        if data and self._idle():
            self._read(data)
        elif data:
            self._others(data)

    def _read(self, data: bytes) -> None:
        """Take the complete messages, and begin the incomplete one."""
        start = 0
        while start < len(data):
            end = data.find(CRLF, start)
            line = self._line(data[start:end]) if end >= 0 else None
            if line is None:
                self._others(data[start:])
                return
            begin = end + len(CRLF)
            number, subject, reply, head, size = line
            if (stop := begin + size) + len(CRLF) > len(data):
                self._begun, self._parts = line, [data[begin:]]
                self._missing = stop + len(CRLF) - len(data)
                return
            self._hand(number, subject, reply, data[begin + head : stop], data[begin : begin + head] if head else None)
            start = stop + len(CRLF)

    def _end(self, line: _Line, data: bytes) -> bytes:
        """Take the rest of the begun message; return the bytes after it."""
        number, subject, reply, head, _ = line
        parts, last, rest = self._parts, data[: self._missing], data[self._missing :]
        self._begun, self._parts = None, []
        if len(last) < len(CRLF):  # the earlier bytes end with its first one
            parts[-1] = parts[-1][:-1]
        else:
            parts.append(last[: -len(CRLF)])
        whole = b"".join(parts)
        self._hand(number, subject, reply, whole[head:] if head else whole, whole[:head] if head else None)
        return rest

    def _line(self, line: bytes) -> _Line | None:
        """Read `MSG subject number [reply] size` or `HMSG subject number [reply] head size`; None for anything else."""
        words = line.split()
        head = 0
        try:
            if words[0] == b"HMSG":
                head = int(words.pop(-2))
            elif words[0] != b"MSG":
                return None
            number, size = int(words[2]), int(words[-1])
        except (ValueError, IndexError):
            return None
        if number not in self._numbers or not 0 <= head <= size or not 4 <= len(words) <= 5:
            return None
        return number, words[1], words[3] if len(words) == 5 else b"", head, size
