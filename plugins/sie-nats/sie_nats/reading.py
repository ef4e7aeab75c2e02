"""Takes messages off a connection as their bytes come; all else is left to nats-py's parser.

nats-py has a task read from a buffer and a coroutine parse what was read: a turn of the event loop later, and for a
message of megabytes many turns and copies later.
"""

from __future__ import annotations

from collections.abc import Callable, Container

CRLF = b"\r\n"
Hand = Callable[[int, bytes, bytes, bytes, bytes | None], None]
"""Takes a message: the number of its subscription, subject, reply, payload and headers."""
_Line = tuple[int, bytes, bytes, int, int]
"""The first line of a message: number, subject, reply, bytes of the headers, bytes of headers and payload."""


class MessageReader:
    """What a connection's bytes go through.

    Args:
        others: Takes the bytes of what is no message to one of `numbers`.
        idle: Whether `others` waits for the beginning of something; it gets all bytes until it does.
        numbers: Those of the subscriptions whose messages are taken.
        most_bytes: A message that claims to be larger is left to `others`.
        hand: Takes the messages.
    """

    def __init__(
        self,
        others: Callable[[bytes], None],
        idle: Callable[[], bool],
        numbers: Container[int],
        most_bytes: Callable[[], int],
        hand: Hand,
    ) -> None:
        self._others, self._idle, self._numbers = others, idle, numbers
        self._most_bytes, self._hand = most_bytes, hand
        self._begun: _Line | None = None
        """The message of which only a part has come."""
        self._part, self._there = bytearray(), 0

    def feed(self, data: bytes) -> None:
        """Take bytes as they come."""
        start = 0
        if self._begun is not None:
            start = self._go_on(self._begun, data)
        elif not self._idle():
            self._others(data)
            return
        while start < len(data):
            end = data.find(CRLF, start)
            line = self._line(data[start:end]) if end >= 0 else None
            if line is None:
                self._others(data[start:])
                return
            begin = end + len(CRLF)
            start = begin + line[-1] + len(CRLF)
            if start > len(data):
                self._begun, self._part, self._there = line, bytearray(start - begin), 0
                self._go_on(line, memoryview(data)[begin:])
                return
            number, subject, reply, head, size = line
            headers = data[begin : begin + head] if head else None
            self._hand(number, subject, reply, data[begin + head : begin + size], headers)

    def _line(self, line: bytes) -> _Line | None:
        """Read `MSG subject number [reply] size` or `HMSG subject number [reply] head size`; None of anything else."""
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
        if number not in self._numbers or not 0 <= head <= size <= self._most_bytes() or not 4 <= len(words) <= 5:
            return None
        return number, words[1], words[3] if len(words) == 5 else b"", head, size

    def _go_on(self, begun: _Line, data: bytes | memoryview) -> int:
        """Take more of a message, which is handed over once it is whole; return how many bytes of `data` are its."""
        there, taken = self._there, min(len(data), len(self._part) - self._there)
        self._part[there : there + taken] = data[:taken]
        self._there += taken
        if self._there == len(self._part):
            number, subject, reply, head, size = begun
            whole, self._begun, self._part = memoryview(self._part), None, bytearray()
            self._hand(number, subject, reply, bytes(whole[head:size]), bytes(whole[:head]) if head else None)
        return taken
