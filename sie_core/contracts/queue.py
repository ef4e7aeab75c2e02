"""The queue between machines: work that is pulled by credit, inboxes, broadcasts and a small key-value store.

A plugin offers one by URL scheme; gateway, sidecar and config service use it, the engine does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

QueueFailure = Literal["UNAVAILABLE", "FULL", "TOO_LARGE", "CONFLICT", "NOT_FOUND", "DENIED", "CONFIG"]
"""Why a transport call failed:

`UNAVAILABLE`: no connection, or no answer in time; the message may still have arrived. `FULL`: a bound of the queue is
reached, nothing was stored. `TOO_LARGE`: beyond `max_payload`. `CONFLICT`: another writer was first. `NOT_FOUND`: no
such queue, consumer or store. `DENIED`: this user may not. `CONFIG`: the queue exists with settings that cannot be
changed.
"""

ConnectionState = Literal["connected", "reconnecting", "closed"]


class QueueError(Exception):
    """A transport call failed; the message holds no credentials."""

    def __init__(self, failure: QueueFailure, message: str) -> None:
        super().__init__(message)
        self.failure: QueueFailure = failure


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """One queue of work. Each message is held until one consumer acknowledges it."""

    name: str
    subjects: tuple[str, ...]
    """Patterns of the subjects it stores: `*` stands for one token, a final `>` for one or more."""
    max_messages: int = 100_000
    _: KW_ONLY
    max_bytes: int = 1 << 30
    max_messages_per_subject: int | None = None
    """Beyond any of the three a publication is refused as `FULL`."""
    max_age_s: float = 120.0
    """A message is dropped after this many seconds, whatever its own time to live."""
    duplicate_window_s: float = 30.0
    """An id that is published again within this time is not stored again."""


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """A consumer that pulls part of a queue. The patterns of a queue's consumers must not overlap."""

    queue: str
    name: str
    subject: str
    """The pattern of the subjects it pulls."""
    _: KW_ONLY
    ack_wait_s: float = 5.0
    """A message neither acknowledged nor marked as in progress for this many seconds is redelivered."""
    max_deliver: int = 20
    """A message delivered so often is not delivered again; it stays until its age ends."""
    max_in_flight: int = 1_000
    """Messages delivered and not yet acknowledged, over all consumers."""
    idle_s: float = 300.0
    """A consumer without pulls is removed after this many seconds."""


@dataclass(frozen=True, slots=True)
class Work:
    """One message for a queue."""

    subject: str
    id: str
    """Unique; see `QueueSettings.duplicate_window_s`."""
    payload: bytes
    _: KW_ONLY
    ttl_s: float | None = None
    """Drop it after this many seconds; rounded up to whole seconds if the broker counts those."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message to an inbox or of a broadcast."""

    subject: str
    payload: bytes
    reply: str = ""
    """Subject on which the sender awaits an answer; empty if it does not."""


class Delivery(Protocol):
    """One pulled message. It is answered from the event loop; the first of `ack` and `nak` counts."""

    subject: str
    payload: bytes
    sequence: int
    """The message's number in its queue."""
    attempt: int
    """1 at the first delivery."""
    waiting: int
    """Messages of the consumer that had never been delivered when this one was."""

    def ack(self) -> None:
        """Remove the message from the queue."""
        ...

    def nak(self, delay_s: float = 0.0) -> None:
        """Have it delivered again, after a delay."""
        ...

    def in_progress(self) -> None:
        """Begin the consumer's `ack_wait_s` anew."""
        ...


class Pull(Protocol):
    """A subscription of one consumer; each delivery uses one of its credit."""

    credit: int
    """Messages that may still come."""

    def add_credit(self, messages: int) -> None:
        """Add to the credit, in messages."""
        ...

    async def close(self) -> None:
        """Stop pulling; messages in transit return to the queue at once."""
        ...


class Subscription(Protocol):
    """Messages to a subject, until closed."""

    subject: str

    async def close(self) -> None:
        """Take no more."""
        ...


@dataclass(frozen=True, slots=True)
class Entry:
    """A value of a key-value store."""

    key: str
    value: bytes
    revision: int
    """Grows with each write to the store."""


class KeyValue(Protocol):
    """A small store shared by all connected programs.

    A key is tokens of letters, digits, `_`, `-` and `=`, joined by `.`.

    Methods raise `QueueError`.
    """

    async def get(self, key: str) -> Entry | None:
        """Return an entry, None if it does not exist."""
        ...

    async def put(self, key: str, value: bytes, *, ttl_s: float | None = None) -> int:
        """Write, whatever is there; return the revision.

        Args:
            key: Of the entry.
            value: Its value.
            ttl_s: The broker removes the entry after this many seconds by its own clock, unless it is written again
                before; rounded up to whole seconds. None: it stays.
        """
        ...

    async def compare_and_set(self, key: str, value: bytes, revision: int | None, *, ttl_s: float | None = None) -> int:
        """Write if the entry's revision is `revision`; None means that the entry must not exist. Return the new
        revision; `ttl_s` as for `put`.

        Raises:
            QueueError: `CONFLICT`: the revision differs, also as the entry was removed.
        """
        ...

    async def delete(self, key: str) -> None:
        """Remove an entry; a missing entry is no error."""
        ...

    async def watch(self, on_entries: Callable[[Mapping[str, Entry]], None], keys: str = ">") -> Subscription:
        """Take the entries whose keys match a pattern, by key: before this returns, and again after each change.

        Changes that follow one another at once may be told as one. After a lost connection it is told what has changed
        meanwhile. The store is not asked again and again.
        """
        ...


@dataclass(frozen=True, slots=True)
class Record:
    """The last message that a journal keeps for a key."""

    key: str
    payload: bytes
    sequence: int
    """The message's number in its journal; it grows with each message and is never used again."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a journal holds at one moment."""

    last: int
    """The number of its last message; before the first, one less than the number that will have."""
    records: tuple[Record, ...]
    """In the order of their numbers."""
    created: str = ""
    """Identifies the creation of the journal: it differs after a journal of the same name was lost and made anew."""


class Journal(Protocol):
    """Messages in one order, shared by all connected programs; the last one of each key is kept.

    A key is tokens of letters, digits, `_`, `-` and `=`, joined by `.`. Nothing is removed: a writer marks a deleted
    key by a payload of its own.

    Methods raise `QueueError`.
    """

    async def append(self, key: str, payload: bytes, *, after: int) -> int:
        """Add a message if the last one of the journal, whatever its key, is number `after`: `Reading.last`.

        Of several writers that state the same number, one wins. Return the number of the new message.

        Raises:
            QueueError: `CONFLICT`: another message was first. `UNAVAILABLE`: the message may be stored; `read` tells.
                `FULL`, `TOO_LARGE`: it is not stored.
        """
        ...

    async def read(self, after: int = 0) -> Reading:
        """Return the last message of each key that has one beyond number `after`.

        It is the state of one moment, at or after the call. If the journal was made anew, `last` may be below `after`.

        Raises:
            QueueError: `TOO_LARGE`: the broker does not give so much in one answer. `UNAVAILABLE`: it did not answer.
        """
        ...


OnStored = Callable[["int | QueueError"], None]
"""Called with the sequence of the stored message, or with the reason why it was not stored.

A message stored before gives its old sequence.
"""


class QueueTransport(Protocol):
    """A connection to the broker of one URL.

    Methods are called on the event loop they were opened on. Callbacks are called there too and must not block; an
    exception is logged and has no other effect. A lost connection is retried without end. Meanwhile methods raise
    `UNAVAILABLE` at once instead of buffering messages; pulls, inboxes and subscriptions resume afterwards.
    """

    url: str
    """The URL without credentials."""
    max_payload: int
    """Bytes of the largest message; known once open."""

    async def open(self, on_state: Callable[[ConnectionState], None] | None = None) -> None:
        """Connect.

        Raises:
            QueueError: `UNAVAILABLE`, `DENIED`.
        """
        ...

    async def close(self) -> None:
        """Send the pending messages, within a time bound, then disconnect. Closing twice is no error."""
        ...

    @property
    def state(self) -> ConnectionState:
        """Whether messages can be sent now."""
        ...

    async def declare_queue(self, settings: QueueSettings, *, change: bool = True) -> None:
        """Create a queue as described, or change the one of that name.

        Args:
            settings: Of the queue.
            change: Whether a queue that differs is changed; otherwise it stays as it is, and the log says what differs.

        Raises:
            QueueError: `CONFIG`: a differing setting cannot be changed; the message names it.
        """
        ...

    async def declare_consumer(self, settings: ConsumerSettings) -> None:
        """Create a consumer as described, or change the one of that name.

        Raises:
            QueueError: `CONFIG`, `NOT_FOUND`.
        """
        ...

    async def publish(self, work: Work, on_stored: OnStored) -> None:
        """Hand a message to the broker; return without its answer, which `on_stored` takes exactly once.

        A queue answers within a bounded time; otherwise `on_stored` takes `UNAVAILABLE`, and the message may be stored.

        Raises:
            QueueError: `UNAVAILABLE`, `TOO_LARGE`: nothing was sent, and `on_stored` is not called.
        """
        ...

    async def pull(self, queue: str, consumer: str, on_delivery: Callable[[Delivery], None], *, credit: int) -> Pull:
        """Pull from a consumer.

        Args:
            queue: The queue.
            consumer: Declared before.
            on_delivery: Takes each message.
            credit: Messages that may come; more by `Pull.add_credit`.

        Raises:
            QueueError: `NOT_FOUND`.
        """
        ...

    async def delete_work(self, queue: str, sequence: int) -> bool:
        """Remove a message, delivered or not; False if it is not there any more."""
        ...

    async def holds_work(self, queue: str, sequence: int) -> bool:
        """Whether a message is still there: waiting, or delivered and not acknowledged."""
        ...

    async def backlog(self, queue: str, subject: str = ">") -> Mapping[str, int]:
        """Count the messages there, by subject; those delivered and not acknowledged are counted."""
        ...

    async def send(self, subject: str, payload: bytes, reply: str = "") -> None:
        """Send to the current subscribers of an inbox or a broadcast. Having no subscriber is no error.

        Raises:
            QueueError: `UNAVAILABLE`, `TOO_LARGE`.
        """
        ...

    async def subscribe(self, subject: str, on_message: Callable[[Message], None]) -> Subscription:
        """Take every message to a subject or a pattern."""
        ...

    async def inbox(self, on_message: Callable[[Message], None]) -> Subscription:
        """Create a subject that nobody else can guess, and receive what is sent to it or below it (`inbox.subject +
        ".x"`).
        """
        ...

    async def key_value(self, name: str, *, make: bool = True) -> KeyValue:
        """Open a store; create it if it does not exist. With `make`, also raise its number of copies to the one wanted.

        Raises:
            QueueError: `NOT_FOUND`: it does not exist, and `make` is false.
        """
        ...

    async def journal(self, name: str, *, make: bool = True, first: int = 1) -> Journal:
        """Open a journal; create it if it does not exist. With `make`, also raise its number of copies to the one
        wanted.

        Args:
            name: Of the journal.
            make: Whether to create it if it does not exist.
            first: The number of the first message of a journal that is created.

        Raises:
            QueueError: `NOT_FOUND`: it does not exist, and `make` is false.
        """
        ...


@runtime_checkable
class ConsumerLookup(Protocol):
    """A `QueueTransport` that knows of messages by their consumer, without reading them."""

    async def waits_for(self, queue: str, sequence: int, consumer: str) -> bool:
        """Whether a message is there and was not given to its consumer yet; False where that is not known."""
        ...


@dataclass(frozen=True, slots=True)
class Access:
    """Permissions of one user of the broker; everything else is refused. Subjects may be patterns."""

    user: str
    """Its name: tokens joined by `.`, as `worker.one`."""
    sends: tuple[str, ...] = ()
    """Subjects it sends to, in addition to inboxes."""
    hears: tuple[str, ...] = ()
    """Subjects it subscribes to, in addition to its own inboxes."""
    _: KW_ONLY
    answers: tuple[str, ...] = ()
    """Users whose inboxes it may send to, including users whose names begin with these."""
    declares: tuple[QueueSettings, ...] = ()
    """Queues that it creates and changes.

    Whoever may declare a queue can make the broker forward its content elsewhere.
    """
    fills: tuple[QueueSettings, ...] = ()
    """Queues it publishes to, counts and deletes from."""
    pulls: tuple[QueueSettings, ...] = ()
    """Queues it declares consumers of, pulls from, counts and acknowledges."""
    declares_stores: tuple[str, ...] = ()
    """Key-value stores it makes and changes."""
    declares_journals: tuple[str, ...] = ()
    """Journals it makes and changes."""
    writes_journals: tuple[str, ...] = ()
    """Journals it appends to and reads."""
    keeps: tuple[str, ...] = ()
    """Key-value stores it makes, reads and writes."""
    reads: tuple[str, ...] = ()
    """Key-value stores it reads."""


@dataclass(frozen=True, slots=True)
class BrokerPlan:
    """A broker to configure."""

    users: tuple[Access, ...]
    passwords: Mapping[str, str]
    """Password per user name."""
    host: str
    _: KW_ONLY
    port: int
    folder: Path
    """Folder for its files."""


@dataclass(frozen=True, slots=True)
class LocalBroker:
    """A private broker on this machine, for `sie cluster up`, or several that keep copies of one another's queues."""

    commands: tuple[tuple[str, ...], ...]
    """The command line of each program.

    It runs in the foreground and keeps its port over restarts. Nobody else gets the port while it is down, so it must
    listen with SO_REUSEADDR, as servers do.
    """
    url: str
    """Of several, all their URLs with commas between."""
    logins: Mapping[str, Mapping[str, str]]
    """The settings of each user by its name, as `QueueTransportFactory.create` takes them."""


@dataclass(frozen=True, slots=True)
class QueueTransportFactory:
    """The transports of one URL scheme, registered by a plugin."""

    scheme: str
    """For example `memory`, for URLs like `memory://name`."""
    create: Callable[[str, Mapping[str, str]], QueueTransport]
    """Takes the URL and the settings that are set: `user`, `password`, `creds`, `inbox_prefix`, `tls_ca`,
    `tls_cert`, `tls_key`, `storage`, `replicas`, as `SIE_NATS_USER` and so on name them. It may
    ignore settings that do not apply.

    May import its library; connects to nothing. Raises `ValueError` if it cannot be used.
    """
    configure: Callable[[BrokerPlan], str] | None = None
    """Writes the broker's configuration, which grants each user the rights of its `Access`. None if it has none."""
    _: KW_ONLY
    local: Callable[[Path, Sequence[Access], int], LocalBroker] | None = None
    """Prepares so many brokers for these users that keep their files in a folder; starts nothing. None if it has none.

    Raises `ValueError`, naming what to install, if its program is missing, or if it cannot run so many.
    """
