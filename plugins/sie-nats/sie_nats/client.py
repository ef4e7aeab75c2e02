"""nats-py's client without its queue, task switches and copies per message.

A message is handed over as soon as its bytes arrive. Sent data joins the next turn of the client's flusher: written at
once, the messages of many requests leave one by one, and cost broker and workers twice the CPU.

nats-py 2.16 has no public way to do either: every callback of a subscription has its own queue and task. So this module
uses private parts of the client, and `check_library` checks them in the installed version.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from nats import errors
from nats.aio.client import PING_PROTO, Client, __version__
from nats.aio.subscription import Subscription
from nats.aio.transport import TcpTransport
from nats.protocol.parser import AWAITING_CONTROL_LINE, Parser

from sie_nats.reading import MessageReader

PRIVATE = ("_sid", "_status", "_transport", "_pending", "_pending_data_size", "_flush_queue", "_flusher_task",
           "_reading_task", "_pongs", "_ps",
           "_read_loop", "_process_msg", "_process_op_err", "_remove_sub", "_send_ping", "_send_command",
           "_flush_pending")  # fmt: skip
"""Private attributes of the client used here and by the connection's watchdog."""
_PROBE = b"MSG probe 7 back 4\r\nwork\r\nHMSG probe 7 12 16\r\nNATS/1.0\r\n\r\nmore\r\n"
_BLANK = re.compile(r"[ \t\r\n]")

log = logging.getLogger("sie_nats")


class Arrived(NamedTuple):
    """One message."""

    subject: str
    reply: str
    data: bytes
    head: bytes | None = None
    """Its headers as received."""

    def headers(self) -> dict[str, str]:
        """Read the headers; JetStream's own messages have `Status` and `Description`."""
        first, *lines = (self.head or b"").decode("utf-8", "replace").split("\r\n")
        _, _, status = first.partition(" ")
        code, _, description = status.partition(" ")
        read = {"Status": code, "Description": description} if code else {}
        for line in lines:
            name, colon, value = line.partition(":")
            if colon:
                read[name] = value.strip()
        return read


Take = Callable[[Arrived], None]


class DirectClient(Client):
    """The client; subscriptions made otherwise than by `take` are nats-py's own."""

    def __init__(self) -> None:
        super().__init__()
        self._takes: dict[int, tuple[str, Take]] = {}

    async def take(self, subject: str, take: Take) -> Subscription:
        """Have `take` called with each message to a subject; an exception is logged."""
        self._takes[self._sid + 1] = (subject, take)  # the next subscription is this one
        return await self.subscribe(subject)

    def send_now(self, subject: str, payload: bytes, reply: str = "", headers: Mapping[str, str] | None = None) -> None:
        """Send one message.

        Raises:
            nats.errors.Error: There is no connection, or a subject or header contains blanks; nothing is sent.
        """
        if not self.is_connected or self._flush_queue is None:
            raise errors.ConnectionClosedError
        head = f"{subject} {reply}" if reply else subject
        if not subject or _BLANK.search(subject) or (reply and _BLANK.search(reply)):
            raise errors.BadSubjectError
        if headers is None:
            self._push(f"PUB {head} {len(payload)}\r\n".encode(), payload)
            return
        if any(map(_BLANK.search, headers.values())):
            raise errors.BadHeaderError(next(iter(headers)))
        told = "".join([f"{name}:{value}\r\n" for name, value in headers.items()])
        packed = f"NATS/1.0\r\n{told}\r\n".encode()
        whole = len(packed) + len(payload)
        self._push(f"HPUB {head} {len(packed)} {whole}\r\n".encode() + packed, payload)

    def _push(self, begin: bytes, payload: bytes) -> None:
        self._pending += (begin, payload, b"\r\n")
        self._pending_data_size += len(begin) + len(payload) + 2
        self.stats["out_msgs"] += 1
        self.stats["out_bytes"] += len(payload)
        queue = self._flush_queue
        if queue is not None and queue.empty():
            queue.put_nowait(asyncio.get_running_loop().create_future())

    async def _read_loop(self) -> None:
        """Have messages taken as their bytes come, and read the rest; once for each connection."""
        reader: asyncio.StreamReader | None = getattr(self._transport, "_io_reader", None)
        if reader is not None:
            parser, plain = self._ps, reader.feed_data

            def idle() -> bool:
                waits = getattr(reader, "_waiter", None) is not None  # then it has nothing that is not read
                return waits and not parser.buf and parser.state == AWAITING_CONTROL_LINE

            direct = MessageReader(plain, idle, self._takes, self._hand_over)
            setattr(reader, "feed_data", direct.feed)  # noqa: B010 - a method of this reader alone
        await super()._read_loop()

    async def _send_ping(self, future: asyncio.Future[bool] | None = None) -> None:
        """Send a PING behind what waits to be sent.

        nats-py's own overtakes it: `flush` then ends before the broker has seen what was sent before, and a
        subscription that drains misses the messages that the broker sent until it saw the UNSUB.
        """
        self._pongs.append(asyncio.get_running_loop().create_future() if future is None else future)
        await self._send_command(PING_PROTO)
        await self._flush_pending()

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: Any) -> None:
        if sid in self._takes:
            self._hand_over(sid, subject, reply, data, headers)
        else:
            await super()._process_msg(sid, subject, reply, data, headers)

    def _hand_over(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> None:
        pattern, take = self._takes[sid]
        self.stats["in_msgs"] += 1
        self.stats["in_bytes"] += len(data)
        try:
            take(Arrived(subject.decode(), reply.decode(), data, headers))
        except Exception:
            log.exception("a callback for %s failed", pattern)

    def _remove_sub(self, sid: int, max_msgs: int = 0) -> None:
        self._takes.pop(sid, None)
        super()._remove_sub(sid, max_msgs)


def check_library() -> None:
    """Have the parser of the installed nats-py hand messages over, before anything depends on it.

    Raises:
        ValueError: It is a version that does so otherwise.
    """
    client, came = DirectClient(), list[Arrived]()
    client._takes[7] = ("probe", came.append)
    missing = [name for name in PRIVATE if not hasattr(client, name)]
    missing += [] if hasattr(TcpTransport(), "_io_writer") else ["TcpTransport._io_writer"]  # type: ignore[no-untyped-call]
    problem = f"it has no {missing[0]}" if missing else None
    if problem is None:
        try:
            Parser(client).parse(_PROBE).send(None)
        except StopIteration:
            pass
        except Exception as error:
            problem = f"its parser fails ({type(error).__name__})"
        wanted = [Arrived("probe", "back", b"work"), Arrived("probe", "", b"more", b"NATS/1.0\r\n\r\n")]
        if problem is None and came != wanted:
            problem = "its parser hands messages over in another way"
    if problem is not None:
        raise ValueError(f"the installed nats-py {__version__} cannot be used: {problem}. Install nats-py 2.16.0")
