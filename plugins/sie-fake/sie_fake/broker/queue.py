"""The transport `memory://NAME`: a broker inside the process, for tests and for a cluster of one process.

It keeps the rules of a real one: bounds, duplicates, ages, redelivery and credit. It lives as long as its
factory.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

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
    QueueTransportFactory,
    Work,
)
from sie_fake.broker.patterns import matches, overlap
from sie_fake.broker.stores import MAX_PAYLOAD, Store, StoredJournal, call


def in_process_transports() -> list[QueueTransportFactory]:
    """Make a broker inside the process."""
    brokers: dict[str, _Broker] = {}

    def create(url: str, settings: Mapping[str, str]) -> QueueTransport:
        return InProcessTransport(url, brokers.setdefault(url, _Broker()))

    return [QueueTransportFactory("memory", create)]


@dataclass(slots=True)
class _Held:
    """A message in a queue."""

    work: Work
    expiry: asyncio.TimerHandle
    attempt: int = 0
    redelivery: asyncio.TimerHandle | None = None
    """Set while it is delivered and not acknowledged, or held back by a nak's delay."""
    waiting: bool = True


@dataclass(slots=True)
class _Queue:
    settings: QueueSettings
    held: dict[int, _Held] = field(default_factory=dict)
    seen: dict[str, tuple[float, int]] = field(default_factory=dict)
    """Time and sequence at which an id was stored."""
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    consumers: dict[str, _Consumer] = field(default_factory=dict)

    def full(self, work: Work) -> str | None:
        """Name the bound that one more message would exceed."""
        most = self.settings.max_messages_per_subject
        held = self.held.values()
        if len(self.held) >= self.settings.max_messages:
            return f"it holds {len(self.held)} messages, its most"
        if sum(len(each.work.payload) for each in held) + len(work.payload) > self.settings.max_bytes:
            return f"its messages would hold more than {self.settings.max_bytes} bytes"
        if most is not None and sum(each.work.subject == work.subject for each in held) >= most:
            return f"it holds {most} messages of {work.subject}, its most"
        return None


@dataclass(slots=True)
class _Consumer:
    settings: ConsumerSettings
    pulls: list[_Pull] = field(default_factory=list)
    in_flight: set[int] = field(default_factory=set)


class _Broker:
    """Queues, subscriptions and stores of one URL."""

    def __init__(self) -> None:
        self.queues: dict[str, _Queue] = {}
        self.subscriptions: list[_Subscription] = []
        self.stores: dict[str, Store] = {}
        self.journals: dict[str, StoredJournal] = {}

    def queue(self, name: str) -> _Queue:
        if name not in self.queues:
            raise QueueError("NOT_FOUND", f"There is no queue {name!r}; declare it first.")
        return self.queues[name]

    def queue_of(self, subject: str) -> _Queue:
        for queue in self.queues.values():
            if any(matches(pattern, subject) for pattern in queue.settings.subjects):
                return queue
        raise QueueError("NOT_FOUND", f"No queue stores the subject {subject!r}.")

    def consumer(self, queue: str, name: str) -> _Consumer:
        consumers = self.queue(queue).consumers
        if name not in consumers:
            raise QueueError("NOT_FOUND", f"The queue {queue!r} has no consumer {name!r}; declare it first.")
        return consumers[name]

    def declare_consumer(self, settings: ConsumerSettings) -> None:
        queue = self.queue(settings.queue)
        for other in queue.consumers.values():
            if other.settings.name != settings.name and overlap(
                other.settings.subject.split("."), settings.subject.split(".")
            ):
                raise QueueError(
                    "CONFIG",
                    f"The consumer {settings.name!r} of {settings.queue!r} would take {settings.subject!r}, which "
                    f"overlaps {other.settings.subject!r} of {other.settings.name!r}.",
                )
        if settings.name in queue.consumers:
            queue.consumers[settings.name].settings = settings
        else:
            queue.consumers[settings.name] = _Consumer(settings)
        self.dispatch(queue)

    def store(self, work: Work) -> int:
        queue, loop = self.queue_of(work.subject), asyncio.get_running_loop()
        now, window = loop.time(), queue.settings.duplicate_window_s
        queue.seen = {each: stored for each, stored in queue.seen.items() if stored[0] > now - window}
        if work.id in queue.seen:
            return queue.seen[work.id][1]
        if (problem := queue.full(work)) is not None:
            raise QueueError("FULL", f"The queue {queue.settings.name!r} takes no more: {problem}.")
        sequence = next(queue.numbers)
        age = min(queue.settings.max_age_s, work.ttl_s if work.ttl_s is not None else queue.settings.max_age_s)
        queue.held[sequence] = _Held(work, loop.call_later(age, self.remove, queue, sequence))
        queue.seen[work.id] = (now, sequence)
        self.dispatch(queue)
        return sequence

    def remove(self, queue: _Queue, sequence: int) -> bool:
        held = queue.held.pop(sequence, None)
        if held is None:
            return False
        held.expiry.cancel()
        if held.redelivery is not None:
            held.redelivery.cancel()
        for consumer in queue.consumers.values():
            consumer.in_flight.discard(sequence)
        self.dispatch(queue)
        return True

    def dispatch(self, queue: _Queue) -> None:
        """Deliver waiting messages to consumers with credit, in turn."""
        for consumer in queue.consumers.values():
            for sequence, held in list(queue.held.items()):
                if len(consumer.in_flight) >= consumer.settings.max_in_flight:
                    break
                if not held.waiting or not matches(consumer.settings.subject, held.work.subject):
                    continue
                willing = [pull for pull in consumer.pulls if pull.credit > 0]
                if not willing:
                    break
                pull = willing[0]
                consumer.pulls.remove(pull)
                consumer.pulls.append(pull)
                self._deliver(queue, consumer, pull, sequence, held)

    def _deliver(self, queue: _Queue, consumer: _Consumer, pull: _Pull, sequence: int, held: _Held) -> None:
        pull.credit -= 1
        held.waiting, held.attempt = False, held.attempt + 1
        consumer.in_flight.add(sequence)
        delivery = _Delivered(self, queue, consumer, sequence, held)
        delivery.in_progress()
        pull.hand_over(delivery)

    def again(self, queue: _Queue, consumer: _Consumer, sequence: int) -> None:
        """Have a message delivered again, unless it was delivered as often as the consumer allows."""
        held = queue.held.get(sequence)
        consumer.in_flight.discard(sequence)
        if held is not None and held.attempt < consumer.settings.max_deliver:
            held.waiting, held.redelivery = True, None
        self.dispatch(queue)


class _Delivered(Delivery):
    """One delivery; a later one of the same message makes its answers void."""

    def __init__(self, broker: _Broker, queue: _Queue, consumer: _Consumer, sequence: int, held: _Held) -> None:
        self._broker, self._queue, self._consumer, self._held = broker, queue, consumer, held
        self.sequence, self.attempt = sequence, held.attempt
        self.subject, self.payload = held.work.subject, held.work.payload
        pattern, others = consumer.settings.subject, queue.held.values()
        self.waiting = sum(each.attempt == 0 and matches(pattern, each.work.subject) for each in others)

    def ack(self) -> None:
        if self._queue.held.get(self.sequence) is self._held:
            self._broker.remove(self._queue, self.sequence)

    def nak(self, delay_s: float = 0.0) -> None:
        if self._current():
            self._redeliver_in(delay_s)
            self._consumer.in_flight.discard(self.sequence)

    def in_progress(self) -> None:
        if self._current():
            self._redeliver_in(self._consumer.settings.ack_wait_s)

    def _current(self) -> bool:
        held = self._held
        there = self._queue.held.get(self.sequence) is held
        return there and not held.waiting and held.attempt == self.attempt and self.sequence in self._consumer.in_flight

    def _redeliver_in(self, delay_s: float) -> None:
        if self._held.redelivery is not None:
            self._held.redelivery.cancel()
        loop = asyncio.get_running_loop()
        self._held.redelivery = loop.call_later(delay_s, self._broker.again, self._queue, self._consumer, self.sequence)


class _Pull:
    def __init__(self, broker: _Broker, queue: _Queue, consumer: _Consumer, take: Callable[[Delivery], None]) -> None:
        self._broker, self._queue, self._consumer, self._take = broker, queue, consumer, take
        self._on_the_way: deque[_Delivered] = deque()
        self.credit = 0

    def add_credit(self, messages: int) -> None:
        if self in self._consumer.pulls:
            self.credit += messages
            self._broker.dispatch(self._queue)

    def hand_over(self, delivery: _Delivered) -> None:
        """Deliver with the loop's next turn, as a socket would."""
        self._on_the_way.append(delivery)
        asyncio.get_running_loop().call_soon(self._arrive)

    def _arrive(self) -> None:
        if self._on_the_way:
            call(self._take, self._on_the_way.popleft())

    async def close(self) -> None:
        if self in self._consumer.pulls:
            self._consumer.pulls.remove(self)
            self.credit = 0
            while self._on_the_way:
                self._on_the_way.popleft().nak()


@dataclass(eq=False, slots=True)
class _Subscription:
    broker: _Broker
    subject: str
    pattern: tuple[str, ...]
    take: Callable[[Message], None]

    async def close(self) -> None:
        if self in self.broker.subscriptions:
            self.broker.subscriptions.remove(self)

    def arrive(self, message: Message) -> None:
        if self in self.broker.subscriptions:
            call(self.take, message)


class InProcessTransport(QueueTransport):
    """A connection to a broker inside the process."""

    max_payload = MAX_PAYLOAD

    def __init__(self, url: str, broker: _Broker) -> None:
        self.url = url
        self._broker = broker
        self._state: ConnectionState = "closed"
        self._own: list[_Pull | _Subscription] = []
        self._on_state: Callable[[ConnectionState], None] | None = None

    @property
    def state(self) -> ConnectionState:
        """Whether messages can be sent now."""
        return self._state

    async def open(self, on_state: Callable[[ConnectionState], None] | None = None) -> None:
        """Connect."""
        self._state, self._on_state = "connected", on_state

    async def close(self) -> None:
        """Send the pending messages, then disconnect."""
        if self._state == "closed":
            return
        for each in self._own:
            await each.close()
        self._state = "closed"
        if self._on_state is not None:
            call(self._on_state, "closed")

    async def declare_queue(self, settings: QueueSettings, *, change: bool = True) -> None:
        """Create a queue as described, or change the one of that name."""
        self._there()
        for other in self._broker.queues.values():
            if other.settings.name != settings.name and any(
                overlap(one.split("."), another.split("."))
                for one in other.settings.subjects
                for another in settings.subjects
            ):
                raise QueueError("CONFIG", f"Subjects of {settings.name!r} are those of {other.settings.name!r} too.")
        if settings.name not in self._broker.queues:
            self._broker.queues[settings.name] = _Queue(settings)
        elif change:
            self._broker.queues[settings.name].settings = settings

    async def declare_consumer(self, settings: ConsumerSettings) -> None:
        """Create a consumer as described, or change the one of that name."""
        self._there()
        self._broker.declare_consumer(settings)

    async def publish(self, work: Work, on_stored: OnStored) -> None:
        """Hand a message to the broker; `on_stored` takes its answer."""
        self._fits(work.payload)
        try:
            stored: int | QueueError = self._broker.store(work)
        except QueueError as error:
            stored = error
        asyncio.get_running_loop().call_soon(call, on_stored, stored)

    async def pull(self, queue: str, consumer: str, on_delivery: Callable[[Delivery], None], *, credit: int) -> _Pull:
        """Pull from a consumer."""
        self._there()
        puller = self._broker.consumer(queue, consumer)
        pull = _Pull(self._broker, self._broker.queue(queue), puller, on_delivery)
        puller.pulls.append(pull)
        self._own.append(pull)
        pull.add_credit(credit)
        return pull

    async def delete_work(self, queue: str, sequence: int) -> bool:
        """Remove a message, delivered or not."""
        self._there()
        return self._broker.remove(self._broker.queue(queue), sequence)

    async def holds_work(self, queue: str, sequence: int) -> bool:
        """Whether a message is still stored."""
        self._there()
        return sequence in self._broker.queue(queue).held

    async def backlog(self, queue: str, subject: str = ">") -> dict[str, int]:
        """Count the messages there, by subject."""
        self._there()
        counts: dict[str, int] = {}
        for held in self._broker.queue(queue).held.values():
            if matches(subject, held.work.subject):
                counts[held.work.subject] = counts.get(held.work.subject, 0) + 1
        return counts

    async def send(self, subject: str, payload: bytes, reply: str = "") -> None:
        """Send to the current subscribers."""
        self._fits(payload)
        message, loop = Message(subject, payload, reply), asyncio.get_running_loop()
        for subscription in self._broker.subscriptions:
            if any(matches(pattern, subject) for pattern in subscription.pattern):
                loop.call_soon(subscription.arrive, message)

    async def subscribe(self, subject: str, on_message: Callable[[Message], None]) -> _Subscription:
        """Take every message to a subject or a pattern."""
        return self._subscribe(subject, (subject,), on_message)

    async def inbox(self, on_message: Callable[[Message], None]) -> _Subscription:
        """Create a subject that nobody else can guess, and receive what is sent to it or below it."""
        subject = f"_INBOX.{secrets.token_hex(12)}"
        return self._subscribe(subject, (subject, subject + ".>"), on_message)

    async def key_value(self, name: str, *, make: bool = True) -> KeyValue:
        """Open a store; create it if it does not exist."""
        self._there()
        if not make and name not in self._broker.stores:
            raise QueueError("NOT_FOUND", f"There is no store {name!r}.")
        return self._broker.stores.setdefault(name, Store())

    async def journal(self, name: str, *, make: bool = True, first: int = 1) -> Journal:
        """Open a journal; create it if it does not exist."""
        self._there()
        if not make and name not in self._broker.journals:
            raise QueueError("NOT_FOUND", f"There is no journal {name!r}.")
        return self._broker.journals.setdefault(name, StoredJournal(first))

    def _subscribe(self, subject: str, pattern: tuple[str, ...], take: Callable[[Message], None]) -> _Subscription:
        self._there()
        subscription = _Subscription(self._broker, subject, pattern, take)
        self._broker.subscriptions.append(subscription)
        self._own.append(subscription)
        return subscription

    def _there(self) -> None:
        if self._state != "connected":
            raise QueueError("UNAVAILABLE", f"The connection to {self.url} is {self._state}.")

    def _fits(self, payload: bytes) -> None:
        self._there()
        if len(payload) > self.max_payload:
            raise QueueError(
                "TOO_LARGE",
                f"A message of {len(payload)} bytes is beyond the {self.max_payload} that {self.url} takes.",
            )
