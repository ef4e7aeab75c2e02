"""Messages are the same however their bytes are cut, and what is no message reaches nats-py's parser."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from nats.protocol.parser import AWAITING_CONTROL_LINE, Parser
from sie_nats.reading import MessageReader

from sie_core.contracts import Message
from tests.nats.conftest import Broker, transport

HEAD = b"NATS/1.0\r\nNats-Msg-Id:7\r\n\r\n"
LINES = (
    b"MSG a.b 1 5\r\nhello\r\n",
    b"PING\r\n",
    b"MSG a.c 1 reply.to 0\r\n\r\n",
    b"HMSG a.d 1 reply.to %d %d\r\n%s\r\n" % (len(HEAD), len(HEAD) + 6, HEAD + b"\r\nMSG "),
    b"MSG other 2 3\r\nabc\r\n",
    b"HMSG a.e 1 %d %d\r\n%s\r\n" % (len(HEAD), len(HEAD), HEAD),
    b"PONG\r\n",
    b"MSG a.f 1 300\r\n" + bytes(300) + b"\r\n",
)


class Connection:
    """A reader before nats-py's own parser, and what each of them took."""

    def __init__(self) -> None:
        self.taken: list[tuple[Any, ...]] = []
        self.left: list[str] = []
        self._parser = Parser(self)
        self.reader = MessageReader(self._parse, self._idle, {1}, lambda *message: self.taken.append(message))

    def _parse(self, data: bytes) -> None:
        parsing = self._parser.parse(data)  # type: ignore[no-untyped-call]
        try:
            parsing.send(None)
        except StopIteration:
            return
        raise AssertionError("nats-py's parser waits")

    def _idle(self) -> bool:
        return not self._parser.buf and self._parser.state == AWAITING_CONTROL_LINE

    async def _process_msg(self, number: int, subject: bytes, reply: bytes, data: bytes, head: bytes | None) -> None:
        if number == 1:
            self.taken.append((number, subject, reply, data, head))
        else:
            self.left.append(subject.decode())

    async def _process_ping(self) -> None:
        self.left.append("ping")

    async def _process_pong(self) -> None:
        self.left.append("pong")


def test_messages_are_taken_whole_and_in_order_wherever_their_bytes_are_cut() -> None:
    stream = b"".join(LINES)
    right = Connection()
    right._parse(stream)
    assert len(right.taken) == 5
    assert right.left == ["ping", "other", "pong"]
    cuts = [(0, cut, len(stream)) for cut in range(len(stream))]
    steps = [(*range(0, len(stream), size), len(stream)) for size in (1, 2, 3, 7, 64)]
    for places in (*cuts, *steps):
        connection = Connection()
        for start, stop in itertools.pairwise(places):
            connection.reader.feed(stream[start:stop])
        assert (connection.taken, connection.left) == (right.taken, right.left), places


def test_what_is_taken_does_not_pass_through_the_parser_of_nats_py() -> None:
    left: list[bytes] = []
    taken: list[bytes] = []
    reader = MessageReader(left.append, lambda: True, {1}, lambda *message: taken.append(message[3]))
    reader.feed(LINES[0] + LINES[-1] + LINES[0][:9])
    assert (taken, left) == ([b"hello", bytes(300)], [LINES[0][:9]])


def test_what_comes_in_parts_is_handed_over_with_its_last_byte_and_passes_through_no_parser() -> None:
    left: list[bytes] = []
    taken: list[bytes] = []
    reader = MessageReader(left.append, lambda: True, {1}, lambda *message: taken.append(message[3]))
    first, *middle, last = itertools.pairwise((0, 20, 100, 250, len(LINES[-1]) - 1, len(LINES[-1])))
    for start, stop in (first, *middle):
        reader.feed(LINES[-1][start:stop])
    assert taken == []
    reader.feed(LINES[-1][slice(*last)] + LINES[0])
    assert (taken, left) == ([bytes(300), b"hello"], [])


def test_lines_that_are_no_messages_are_left_to_the_parser() -> None:
    for line in (b"MSG a 1\r\n", b"MSG a x 1\r\n", b"HMSG a 1 9 3\r\n", b"MSG a 1 b c 3\r\n", b"\r\n", b"-ERR 'x'\r\n"):
        left: list[bytes] = []
        reader = MessageReader(left.append, lambda: True, {1}, lambda *_: None)
        reader.feed(line)
        assert left == [line]


async def test_messages_of_a_real_connection_are_taken_as_their_bytes_come(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[bytes] = []
    parse = Parser.parse

    async def recorded(parser: Parser, data: bytes = b"") -> None:
        parsed.append(data)
        await parse(parser, data)  # type: ignore[no-untyped-call]

    connected = transport(broker.url)  # which has the parser read a message, to see how it hands it over
    monkeypatch.setattr(Parser, "parse", recorded)
    await connected.open()
    came: asyncio.Queue[Message] = asyncio.Queue()
    inbox = await connected.inbox(came.put_nowait)
    async with asyncio.timeout(30.0):
        parsed.clear()
        for payload in (bytes(900_000), b"small", b""):  # the first comes in many parts
            await connected.send(inbox.subject, payload)
            assert (await came.get()).payload == payload
    await connected.close()
    assert not [data for data in parsed if data.startswith((b"MSG", b"HMSG"))]
