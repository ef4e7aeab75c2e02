"""nats-py's client without the queue, the task's turn and the copies that each message costs there.

A message is handed over as it is read. What is sent joins what leaves with the next turn of the client's flusher.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from nats import errors
from nats.aio.client import Client
from nats.aio.subscription import Subscription

_BLANK = re.compile(r"[ \t\r\n]")

log = logging.getLogger("sie_nats")


class Arrived(NamedTuple):
    """One message."""

    subject: str
    reply: str
    data: bytes
    head: bytes | None = None
    """Its headers as they came."""

    def headers(self) -> dict[str, str]:
        """Read the headers; those of JetStream's own messages hold `Status` and `Description`."""
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
        """Have `take` called with each message to a subject; what it raises is logged."""
        self._takes[self._sid + 1] = (subject, take)  # the next subscription is this one
        return await self.subscribe(subject)

    def send_now(self, subject: str, payload: bytes, reply: str = "", headers: Mapping[str, str] | None = None) -> None:
        """Send one message.

        Raises:
            nats.errors.Error: There is no connection, or a subject or header holds blanks; nothing is sent.
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

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: Any) -> None:
        found = self._takes.get(sid)
        if found is None:
            await super()._process_msg(sid, subject, reply, data, headers)
            return
        self.stats["in_msgs"] += 1
        self.stats["in_bytes"] += len(data)
        try:
            found[1](Arrived(subject.decode(), reply.decode(), data, headers))
        except Exception:
            log.exception("a callback for %s failed", found[0])

    def _remove_sub(self, sid: int, max_msgs: int = 0) -> None:
        self._takes.pop(sid, None)
        super()._remove_sub(sid, max_msgs)
