"""The transport over JetStream: work in work-queue streams, inboxes and broadcasts as plain messages."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from nats.aio.subscription import Subscription as NatsSubscription

from sie_core.contracts import (
    ConnectionState,
    ConsumerSettings,
    Delivery,
    Journal,
    KeyValue,
    Message,
    OnStored,
    QueueError,
    QueueSettings,
    QueueTransport,
    Subscription,
    Work,
)
from sie_nats.client import Arrived, Take
from sie_nats.connection import Connection, api_error
from sie_nats.moving import hears_most, leave_if_cut_off
from sie_nats.options import Options
from sie_nats.pulling import LEAST_LINGER_S, LINGER_S, JetStreamPull
from sie_nats.stores.journals import JetStreamJournal, journal_config
from sie_nats.stores.key_values import JetStreamKeyValue, bucket_config
from sie_nats.stores.watching import JetStreamWatch
from sie_nats.streams import consumer_config, differences, spare_headers, spare_subject, stream_config

STORED_S = 2.0
"""Seconds for the broker to confirm that a message is stored: without a leader it never does, and nobody is told."""
LATE_S = 0.5
SPARE_S = 1.0
"""Seconds between two spare messages: the file with the last one may be full by then."""
GIVEN_S = 0.5
"""Seconds for which an answer about a consumer is used again: it may have been given more since, never less."""
NO_MESSAGE = 10037
NO_ROOM = "insufficient"
"""Marks JetStream's error for lack of memory or disk for a stream."""
OTHER_STORAGE = "storage type can not be updated"
IN_PROCESS = 10158
"""JetStream's error code: a message of this id is to be stored, and not stored yet."""
FULL = ("maximum messages exceeded", "maximum bytes exceeded", "maximum messages per subject exceeded")

log = logging.getLogger("sie_nats")


class JetStreamTransport(QueueTransport):
    """One connection to a broker or a cluster of them."""

    def __init__(self, options: Options) -> None:
        self.url = options.url
        self._options = options
        self._connection = Connection(options)
        self._on_state: Callable[[ConnectionState], None] | None = None
        self._answers = ""
        self._numbers = 0
        self._unanswered: dict[str, tuple[OnStored, float]] = {}
        """Deadlines of the broker's confirmations; the earliest comes first."""
        self._due: asyncio.TimerHandle | None = None
        """One timer for all of them: a timer per message costs as much as sending it."""
        self._pulls: list[JetStreamPull] = []
        self._watches: list[JetStreamWatch] = []
        self._consumers: dict[tuple[str, str], ConsumerSettings] = {}
        self._spared_at: dict[str, float] = {}
        self._given: dict[tuple[str, str], tuple[float, float]] = {}
        """When each consumer was asked about, and the last message that it was given; infinite where none waits."""
        self._queue: str | None = None
        """One that is used here, whose leader tells whether the broker is cut off."""

    @property
    def max_payload(self) -> int:  # type: ignore[override]
        """Bytes of the largest message."""
        return self._connection.max_payload

    @property
    def state(self) -> ConnectionState:
        """Whether messages can be sent now."""
        return self._connection.state

    async def open(self, on_state: Callable[[ConnectionState], None] | None = None) -> None:
        """Connect."""
        self._on_state = on_state
        await self._connection.open(self._changed)
        self._answers = self._connection.new_inbox()
        await self._connection.subscribe(f"{self._answers}.*", self._answered)
        self._connection.run(leave_if_cut_off(self._connection, lambda: self._queue))

    async def close(self) -> None:
        """Send the pending messages, then disconnect."""
        for pull in self._pulls:
            await pull.close()
        await self._connection.close()
        self._fail_unanswered("closed")
        if self._due is not None:
            self._due.cancel()

    async def declare_queue(self, settings: QueueSettings, *, change: bool = True) -> None:
        """Create a queue as described, or change the one of that name."""
        wanted = stream_config(settings, self._options.storage, self._options.replicas)
        self._queue = settings.name
        try:
            there = (await self._connection.ask(f"STREAM.INFO.{settings.name}"))["config"]
        except QueueError as error:
            if error.failure != "NOT_FOUND":
                raise
            await self._create(settings, wanted)
            return
        if changed := differences(wanted, there):
            if not change:
                log.warning("the queue %s is left as it is: %s", settings.name, _told(changed))
                return
            log.info("the queue %s is changed: %s", settings.name, _told(changed))
            try:
                await self._connection.ask(f"STREAM.UPDATE.{settings.name}", wanted)
            except QueueError as error:
                told = f"The queue {settings.name!r} differs, and cannot be changed: {_told(changed)} ({error})."
                raise QueueError(error.failure, told) from None

    async def _create(self, settings: QueueSettings, wanted: dict[str, Any]) -> None:
        try:
            await self._connection.ask(f"STREAM.CREATE.{settings.name}", wanted)
        except QueueError as error:
            if NO_ROOM not in str(error):
                raise
            told = (
                f"{self.url} has no room for the queue {settings.name!r}, which may hold {settings.max_bytes >> 20} MB "
                f"({error}): make room where the broker keeps its files, or raise its `max_file_store`."
            )
            raise QueueError(error.failure, told) from None

    async def declare_consumer(self, settings: ConsumerSettings) -> None:
        """Create a consumer as described, or change the one of that name."""
        config = consumer_config(settings)
        subject = f"CONSUMER.CREATE.{settings.queue}.{settings.name}.{settings.subject}"
        try:
            await self._connection.ask(subject, {"stream_name": settings.queue, "config": config})
        except QueueError as error:
            if OTHER_STORAGE not in str(error):
                raise
            config.pop("mem_storage")  # an older release made it
            await self._connection.ask(subject, {"stream_name": settings.queue, "config": config})
        self._consumers[settings.queue, settings.name] = settings

    async def publish(self, work: Work, on_stored: OnStored) -> None:
        """Hand a message to the broker; `on_stored` takes its answer."""
        self._numbers += 1
        number = str(self._numbers)
        headers = {"Nats-Msg-Id": work.id}
        if work.ttl_s is not None:
            headers["Nats-TTL"] = str(max(1, math.ceil(work.ttl_s)))
        self._await_answer(number, on_stored)
        try:
            await self._connection.send(work.subject, work.payload, f"{self._answers}.{number}", headers)
        except QueueError:
            self._forget(number)
            raise

    async def pull(
        self, queue: str, consumer: str, on_delivery: Callable[[Delivery], None], *, credit: int
    ) -> JetStreamPull:
        """Pull from a consumer."""
        await self._connection.ask(f"CONSUMER.INFO.{queue}.{consumer}")
        self._queue = queue

        async def declare_again() -> None:
            if (settings := self._consumers.get((queue, consumer))) is not None:
                await self.declare_consumer(settings)

        # A pull expires within the ack wait: a stalled process has none left when its messages are redelivered.
        settings = self._consumers.get((queue, consumer))
        linger_s = LINGER_S if settings is None else max(LEAST_LINGER_S, min(LINGER_S, settings.ack_wait_s))
        pull = JetStreamPull(self._connection, queue, consumer, on_delivery, declare_again, linger_s)
        await pull.open(credit)
        self._pulls = [each for each in self._pulls if not each.closed] + [pull]
        return pull

    async def delete_work(self, queue: str, sequence: int) -> bool:
        """Remove a message, delivered or not."""
        try:
            answer = await self._connection.ask(f"STREAM.MSG.DELETE.{queue}", {"seq": sequence, "no_erase": True})
        except QueueError as error:
            if error.failure == "UNAVAILABLE" or not await self.holds_work(queue, sequence):
                if error.failure == "UNAVAILABLE":
                    raise
                return False
            raise
        return bool(answer.get("success"))

    async def holds_work(self, queue: str, sequence: int) -> bool:
        """Whether a message is still stored."""
        try:
            await self._connection.ask(f"STREAM.MSG.GET.{queue}", {"seq": sequence})
        except QueueError as error:
            if error.failure != "NOT_FOUND":
                raise
            # A missing stream is reported differently from a missing message.
            await self._connection.ask(f"STREAM.INFO.{queue}")
            return False
        return True

    async def waits_for(self, queue: str, sequence: int, consumer: str) -> bool:
        """Whether something waits for a consumer, and a message is beyond what that was given: one answer for all."""
        now = time.monotonic()
        if (queue, consumer) not in self._given or now - self._given[queue, consumer][0] >= GIVEN_S:
            self._given = {each: given for each, given in self._given.items() if now - given[0] < GIVEN_S}
            given = math.inf
            try:
                info = await self._connection.ask(f"CONSUMER.INFO.{queue}.{consumer}")
                if info["num_pending"]:
                    given = info["delivered"]["stream_seq"]
            except QueueError as error:  # nobody pulls, or this user may not ask
                if error.failure == "UNAVAILABLE":
                    raise
            self._given[queue, consumer] = now, given
        return sequence > self._given[queue, consumer][1]

    async def backlog(self, queue: str, subject: str = ">") -> dict[str, int]:
        """Count the messages there, by subject."""
        counts: dict[str, int] = {}
        self._queue = queue
        while True:
            question = {"subjects_filter": subject, "offset": len(counts)}
            answer = await self._connection.ask(f"STREAM.INFO.{queue}", question)
            if not hears_most(answer):
                raise QueueError("UNAVAILABLE", f"{queue} has no leader that hears most brokers.")
            page = answer["state"].get("subjects") or {}
            counts |= page
            if not page or len(counts) >= answer.get("total", 0):
                counts.pop(spare_subject(queue), None)
                return counts

    async def send(self, subject: str, payload: bytes, reply: str = "") -> None:
        """Send to the current subscribers."""
        await self._connection.send(subject, payload, reply)

    async def subscribe(self, subject: str, on_message: Callable[[Message], None]) -> Subscription:
        """Take every message to a subject or a pattern."""
        return _Subscription(subject, [await self._connection.subscribe(subject, _taking(on_message))])

    async def inbox(self, on_message: Callable[[Message], None]) -> Subscription:
        """Create a subject that nobody else can guess, and receive what is sent to it or below it."""
        subject, take = self._connection.new_inbox(), _taking(on_message)
        parts = [await self._connection.subscribe(each, take) for each in (subject, f"{subject}.>")]
        return _Subscription(subject, parts)

    async def key_value(self, name: str, *, make: bool = True) -> KeyValue:
        """Open a store; create it if it does not exist. Raise its copies to `SIE_NATS_REPLICAS` if it has fewer."""
        config = bucket_config(name, self._options.storage, self._options.replicas)
        await self._open("store", name, config, ("allow_msg_ttl", "subject_delete_marker_ttl", "republish"), make)
        return JetStreamKeyValue(self._connection, name, self._watching)

    async def journal(self, name: str, *, make: bool = True, first: int = 1) -> Journal:
        """Open a journal; create it if it does not exist. Raise its copies to `SIE_NATS_REPLICAS` if it has fewer."""
        config = journal_config(name, self._options.storage, self._options.replicas, first)
        await self._open("journal", name, config, (), make)
        return JetStreamJournal(self._connection, name)

    async def _open(self, kind: str, name: str, config: dict[str, Any], needed: Sequence[str], make: bool) -> None:
        """Find the stream of a store; with `make`, create it, or add settings that it lacks and copies."""
        stream = config["name"]
        try:
            there = (await self._connection.ask(f"STREAM.INFO.{stream}"))["config"]
        except QueueError as error:
            if error.failure != "NOT_FOUND":
                raise
            if not make:
                raise QueueError("NOT_FOUND", f"There is no {kind} {name!r}.") from None
            try:
                await self._connection.ask(f"STREAM.CREATE.{stream}", config)
                return
            except QueueError:  # another was first, with other settings
                there = (await self._connection.ask(f"STREAM.INFO.{stream}"))["config"]
        wanted = {each: config[each] for each in needed if not there.get(each)}
        if there["num_replicas"] < config["num_replicas"]:
            wanted["num_replicas"] = config["num_replicas"]
        if not (make and wanted):
            return
        try:
            await self._connection.ask(f"STREAM.UPDATE.{stream}", {**there, **wanted})
            log.info("%s is changed: %s", stream, wanted)
        except QueueError as error:  # it is a store all the same
            log.warning("%s cannot be changed to %s: %s", stream, wanted, error)

    def _watching(self, watch: JetStreamWatch) -> None:
        self._watches = [each for each in self._watches if not each.closed] + [watch]

    def _answered(self, message: Arrived) -> None:
        entry = self._forget(message.subject.rpartition(".")[2])
        if entry is None:
            return
        if not message.data:
            entry(QueueError("NOT_FOUND", "No queue stores this subject."))
            return
        answer: dict[str, Any] = json.loads(message.data)
        if (error := answer.get("error")) is None:
            self._spare(answer["stream"])
            entry(answer["seq"])
        elif error.get("description") in FULL:
            entry(QueueError("FULL", f"The queue takes no more: {error['description']}."))
        elif error.get("err_code") == IN_PROCESS:
            entry(QueueError("UNAVAILABLE", "The message was sent before, and is not stored yet."))
        else:
            entry(api_error(error, "publish"))

    def _spare(self, queue: str) -> None:
        """Keep one spare message in a queue that is in use."""
        now = asyncio.get_running_loop().time()
        if self._options.storage == "file" and now - self._spared_at.get(queue, -SPARE_S) >= SPARE_S:
            self._spared_at[queue] = now
            self._connection.send_soon(spare_subject(queue), b"", headers=spare_headers())

    def _await_answer(self, number: str, on_stored: OnStored) -> None:
        loop = asyncio.get_running_loop()
        self._unanswered[number] = (on_stored, loop.time() + STORED_S)
        if self._due is None:
            self._due = loop.call_later(STORED_S, self._not_answered, loop.time() + STORED_S)

    def _not_answered(self, due: float) -> None:
        """Report overdue messages, and check again when the next one is due."""
        loop, self._due = asyncio.get_running_loop(), None
        now = loop.time()
        if now - due > LATE_S:
            # This process itself stalled: the answers may have arrived and not been read yet.
            self._unanswered = {number: (call, now + STORED_S) for number, (call, _) in self._unanswered.items()}
        for number in [number for number, (_, at) in self._unanswered.items() if at <= now]:
            if (on_stored := self._forget(number)) is not None:
                told = f"{self.url} did not say within {STORED_S:g} s that it stored it."
                _call(on_stored, QueueError("UNAVAILABLE", told))
        if self._unanswered and self._due is None:
            _, at = next(iter(self._unanswered.values()))
            self._due = loop.call_at(at, self._not_answered, at)

    def _forget(self, number: str) -> OnStored | None:
        return self._unanswered.pop(number, (None, None))[0]

    def _fail_unanswered(self, why: str) -> None:
        for number in list(self._unanswered):
            if (on_stored := self._forget(number)) is not None:
                _call(on_stored, QueueError("UNAVAILABLE", f"The connection to {self.url} is {why}; it may be stored."))

    def _changed(self, state: ConnectionState) -> None:
        if state == "connected":
            for pull in self._pulls:
                pull.renew()
            for watch in self._watches:
                watch.renew()
        else:
            self._fail_unanswered(state)
        if self._on_state is not None:
            _call(self._on_state, state)


class _Subscription:
    def __init__(self, subject: str, parts: list[NatsSubscription]) -> None:
        self.subject = subject
        self._parts = parts

    async def close(self) -> None:
        """Take no more."""
        parts, self._parts = self._parts, []
        for part in parts:
            await part.unsubscribe()


def _call(callback: Callable[[Any], None], value: Any) -> None:
    """Call a callback of a user of the transport. An exception would end nats-py's reconnecting task."""
    try:
        callback(value)
    except Exception:
        log.exception("a callback failed")


def _taking(on_message: Callable[[Message], None]) -> Take:
    return lambda message: on_message(Message(message.subject, message.data, message.reply))


def _told(changed: dict[str, tuple[Any, Any]]) -> str:
    return ", ".join(f"{name} is {there}, wanted is {wanted}" for name, (there, wanted) in changed.items())
