"""A connection to the broker of one name."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import Counter

from sie_core.contracts import Entry, Message, QueueError, Reading, Record
from sie_test_outside_queue.shelf import Broker, Diary, Shelf, Store, matches

BROKERS: dict[str, Broker] = {}
log = logging.getLogger(__name__)


def guarded(callback, *arguments):
    try:
        callback(*arguments)
    except Exception:
        log.exception("a callback failed")


class ShelfDelivery:
    def __init__(self, shelf, entry, consumer):
        self.subject, self.payload = entry.work.subject, entry.work.payload
        self.sequence, self.attempt = entry.sequence, entry.deliveries
        others = shelf.entries.values()
        self.waiting = sum(not each.deliveries and matches(consumer.subject, each.work.subject) for each in others)
        self._shelf, self._entry, self._consumer = shelf, entry, consumer
        self._done = False
        entry.taken_by = self
        self._timer = asyncio.get_running_loop().call_later(consumer.ack_wait_s, shelf.give_back, entry, self)

    def ack(self):
        if not self._done:
            self._done = True
            self._timer.cancel()
            self._shelf.entries.pop(self.sequence, None)
            self._shelf.hand_out()

    def nak(self, delay_s=0.0):
        if not self._done:
            self._done = True
            self._timer.cancel()
            self._shelf.give_back(self._entry, self, delay_s)

    def in_progress(self):
        if not self._done:
            self._timer.cancel()
            wait_s = self._consumer.ack_wait_s
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._shelf.give_back, self._entry, self)


class ShelfPull:
    def __init__(self, shelf, consumer, take, credit):
        self.consumer, self.credit, self.last = consumer, credit, 0.0
        self._shelf, self._take, self._open = shelf, take, True

    def give(self, entry, consumer):
        self.credit -= 1
        self.last = time.monotonic()
        entry.deliveries += 1
        asyncio.get_running_loop().call_soon(self._arrive, ShelfDelivery(self._shelf, entry, consumer))

    def _arrive(self, delivery):
        if self._open:
            guarded(self._take, delivery)
        else:
            delivery.nak()

    def add_credit(self, messages):
        self.credit += messages
        self._shelf.hand_out()

    async def close(self):
        self._open, self.credit = False, 0
        if self in self._shelf.pulls:
            self._shelf.pulls.remove(self)


class Listener:
    def __init__(self, broker, subject, patterns, take):
        self.subject, self.patterns = subject, patterns
        self._broker, self._take = broker, take
        broker.listeners.append(self)

    def arrive(self, message):
        if self in self._broker.listeners:
            guarded(self._take, message)

    async def close(self):
        if self in self._broker.listeners:
            self._broker.listeners.remove(self)


class ShelfJournal:
    def __init__(self, diary):
        self._diary = diary

    async def append(self, key, payload, *, after):
        if after != self._diary.last:
            raise QueueError("CONFLICT", f"The journal is at {self._diary.last}.")
        return self._diary.write(key, payload)

    async def read(self, after=0):
        pages = sorted((number, key, payload) for key, (number, payload) in self._diary.pages.items())
        records = tuple(Record(key, payload, number) for number, key, payload in pages if number > after)
        return Reading(self._diary.last, records, self._diary.created)


class ShelfKeyValue:
    def __init__(self, store):
        self._store = store

    async def get(self, key):
        found = self._store.get(key)
        return None if found is None else Entry(key, *found)

    async def put(self, key, value, *, ttl_s=None):
        return self._store.put(key, value, ttl_s)

    async def compare_and_set(self, key, value, revision, *, ttl_s=None):
        found = self._store.get(key)
        if (None if found is None else found[1]) != revision:
            raise QueueError("CONFLICT", f"{key} has another revision.")
        return self._store.put(key, value, ttl_s)

    async def delete(self, key):
        self._store.remove(key)

    async def watch(self, on_entries, keys=">"):
        return ShelfWatch(self._store, on_entries, keys)


class ShelfWatch:
    def __init__(self, store, on_entries, keys):
        self.subject = keys
        self._store, self._on_entries = store, on_entries
        store.watches[self] = self._tell
        self._tell()

    def _tell(self):
        there = self._store.values.items()
        guarded(self._on_entries, {key: Entry(key, *each) for key, each in there if matches(self.subject, key)})

    async def close(self):
        self._store.watches.pop(self, None)


class ShelfTransport:
    max_payload = 1 << 20

    def __init__(self, url):
        self.url = url
        self._broker = BROKERS.setdefault(url, Broker())
        self._state, self._on_state = "closed", None
        self._own = []

    @property
    def state(self):
        return self._state

    async def open(self, on_state=None):
        self._on_state = on_state
        self._become("connected")

    async def close(self):
        own, self._own = self._own, []
        for each in own:
            await each.close()
        if self._state != "closed":
            self._become("closed")

    async def declare_queue(self, settings, *, change=True):
        self._there()
        shelf = self._broker.shelves.setdefault(settings.name, Shelf(settings))
        if change:
            shelf.settings = settings

    async def declare_consumer(self, settings):
        self._there()
        self._broker.shelf(settings.queue).declare(settings)

    async def publish(self, work, on_stored):
        self._fits(work.payload)
        shelves = self._broker.shelves.values()
        shelf = next((s for s in shelves if any(matches(each, work.subject) for each in s.settings.subjects)), None)
        try:
            outcome = QueueError("NOT_FOUND", "No shelf.") if shelf is None else shelf.store(work)
        except QueueError as error:
            outcome = error
        asyncio.get_running_loop().call_soon(guarded, on_stored, outcome)

    async def pull(self, queue, consumer, on_delivery, *, credit):
        self._there()
        shelf = self._broker.shelf(queue)
        if consumer not in shelf.consumers:
            raise QueueError("NOT_FOUND", f"There is no consumer {consumer}.")
        pull = ShelfPull(shelf, consumer, on_delivery, credit)
        shelf.pulls.append(pull)
        self._own.append(pull)
        shelf.hand_out()
        return pull

    async def delete_work(self, queue, sequence):
        self._there()
        return self._broker.shelf(queue).entries.pop(sequence, None) is not None

    async def holds_work(self, queue, sequence):
        self._there()
        return sequence in self._broker.shelf(queue).entries

    async def backlog(self, queue, subject=">"):
        self._there()
        subjects = [entry.work.subject for entry in self._broker.shelf(queue).entries.values()]
        return dict(Counter(each for each in subjects if matches(subject, each)))

    async def send(self, subject, payload, reply=""):
        self._fits(payload)
        for listener in self._broker.listeners:
            if any(matches(pattern, subject) for pattern in listener.patterns):
                asyncio.get_running_loop().call_soon(listener.arrive, Message(subject, payload, reply))

    async def subscribe(self, subject, on_message):
        return self._listen(subject, (subject,), on_message)

    async def inbox(self, on_message):
        subject = f"reply.{secrets.token_hex(12)}"
        return self._listen(subject, (subject, subject + ".>"), on_message)

    async def key_value(self, name, *, make=True):
        self._there()
        if not make and name not in self._broker.stores:
            raise QueueError("NOT_FOUND", f"There is no store {name}.")
        return ShelfKeyValue(self._broker.stores.setdefault(name, Store()))

    async def journal(self, name, *, make=True, first=1):
        self._there()
        if not make and name not in self._broker.diaries:
            raise QueueError("NOT_FOUND", f"There is no journal {name}.")
        return ShelfJournal(self._broker.diaries.setdefault(name, Diary(first)))

    def _listen(self, subject, patterns, take):
        self._there()
        listener = Listener(self._broker, subject, patterns, take)
        self._own.append(listener)
        return listener

    def _become(self, state):
        self._state = state
        if self._on_state is not None:
            self._on_state(state)

    def _there(self):
        if self._state != "connected":
            raise QueueError("UNAVAILABLE", f"{self.url} is {self._state}.")

    def _fits(self, payload):
        self._there()
        if len(payload) > self.max_payload:
            raise QueueError("TOO_LARGE", "It is larger than a shelf.")
