"""A JetStream stream that keeps the last message of each subject, as the core's journal."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from nats.errors import Error
from nats.js.errors import APIError

from sie_core.contracts import Journal, QueueError, QueueFailure, Reading, Record
from sie_nats.client import Arrived
from sie_nats.connection import API_S, Connection

WRONG_LAST = (10071, 10164)
"""JetStream's error codes: the stream's last sequence is not the stated one."""
FULL = (10077, 10047, 10023)
"""JetStream's error codes: the stream's limits or the broker's disk or memory leave no room."""
MOST = 1_000_000
"""Bounds the keys that one reading returns; the broker's own bound on an answer, 64 MiB by default, comes first."""
LAGS = 5
"""How many copies that lag behind the stream's leader a reader asks, before `UNAVAILABLE`."""


def journal_config(name: str, storage: str, replicas: int, first: int = 1) -> dict[str, Any]:
    """Return the stream's configuration."""
    return {
        "name": name,
        "subjects": [f"{name}.>"],
        "retention": "limits",
        "storage": storage,
        "num_replicas": replicas,
        "discard": "new",
        "max_msgs_per_subject": 1,
        "deny_delete": True,
        "deny_purge": True,
        "allow_direct": True,
        "first_seq": first,
    }


class JetStreamJournal(Journal):
    """One stream."""

    def __init__(self, connection: Connection, name: str) -> None:
        self._connection, self._name = connection, name

    async def append(self, key: str, payload: bytes, *, after: int) -> int:
        """Add a message if the stream's last one is number `after`."""
        self._connection.require(payload)
        stream = self._connection.client.jetstream()
        headers = {"Nats-Expected-Last-Sequence": str(after)}
        try:
            return (await stream.publish(f"{self._name}.{key}", payload, timeout=API_S, headers=headers)).seq
        except APIError as error:
            if error.err_code in WRONG_LAST:
                told = f"The journal {self._name!r} is not at {after}; read on."
                raise QueueError("CONFLICT", told) from None
            failure: QueueFailure = "FULL" if error.err_code in FULL else "UNAVAILABLE"
            raise QueueError(failure, f"The journal {self._name!r} did not take it: {error.description}.") from None
        except (Error, TimeoutError) as error:
            told = f"The journal {self._name!r} did not answer: {error or type(error).__name__}."
            raise QueueError("UNAVAILABLE", told) from None

    async def read(self, after: int = 0) -> Reading:
        """Return the last message of each key that has one beyond number `after`."""
        told = await self._connection.ask(f"STREAM.INFO.{self._name}")
        state, created = told["state"], str(told["created"])
        last = state["last_seq"]
        if not state["messages"] or last <= after:
            return Reading(last, (), created)
        for _ in range(LAGS):
            # One answer comes from one copy, and so is the state of one moment. Parts of two copies would not be: one
            # that is ahead has dropped a key's older message, and one that lags has not got the newer one.
            found = await self._answer(after)
            if found and found[-1].sequence >= last:
                return Reading(found[-1].sequence, tuple(found), created)
        raise QueueError("UNAVAILABLE", f"The copies of the journal {self._name!r} lag: {last} messages are written.")

    async def _answer(self, after: int) -> list[Record]:
        """Ask any copy of the stream for all messages that follow."""
        came: list[Record] = []
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def take(message: Arrived) -> None:
            headers = message.headers()
            if (sequence := headers.get("Nats-Sequence")) is not None:
                key = headers["Nats-Subject"].removeprefix(f"{self._name}.")
                came.append(Record(key, message.data, int(sequence)))
            elif ended.done():
                return
            elif int(headers.get("Nats-Num-Pending", "0")):
                ended.set_exception(QueueError("TOO_LARGE", f"The journal {self._name!r} is beyond one answer's size."))
            elif headers.get("Status") in ("204", "404"):  # the end of the answer
                ended.set_result(None)
            else:
                told = headers.get("Description") or "nobody answers"
                ended.set_exception(QueueError("UNAVAILABLE", f"The journal {self._name!r} cannot be read: {told}."))

        inbox = self._connection.new_inbox()
        subscription = await self._connection.subscribe(inbox, take)
        question = {"seq": after + 1, "batch": MOST, "next_by_subj": f"{self._name}.>"}
        try:
            await self._connection.send(f"$JS.API.DIRECT.GET.{self._name}", json.dumps(question).encode(), inbox)
            async with asyncio.timeout(API_S):
                await ended
        except TimeoutError:
            raise QueueError("UNAVAILABLE", f"The journal {self._name!r} did not answer.") from None
        finally:
            await subscription.unsubscribe()
        return came
