"""The broker: queues of work, each message on a shelf until somebody acknowledges it."""

from __future__ import annotations

import asyncio
import itertools
import re
import secrets
import time

from sie_core.contracts import QueueError


def matches(pattern, subject):
    """Whether a subject is one of a pattern's."""
    parts = [{"*": r"[^.]+", ">": r".+"}.get(token, re.escape(token)) for token in pattern.split(".")]
    return re.fullmatch(r"\.".join(parts), subject) is not None


def overlap(one, other):
    """Whether a subject could match both patterns."""
    for left, right in zip(one.split("."), other.split("."), strict=False):
        if ">" in (left, right):
            return True
        if left != right and "*" not in (left, right):
            return False
    return one.count(".") == other.count(".")


class Entry:
    """One message on the shelf."""

    def __init__(self, work, sequence):
        self.work, self.sequence = work, sequence
        self.deliveries = 0
        self.free_at = 0.0
        self.taken_by = None


class Shelf:
    """One queue."""

    def __init__(self, settings):
        self.settings = settings
        self.entries = {}
        self.ids = {}
        self.consumers = {}
        self.pulls = []
        self._numbers = itertools.count(1)

    def store(self, work):
        """Return the sequence of a message; raises FULL."""
        now, settings = time.monotonic(), self.settings
        known = self.ids.get(work.id)
        if known is not None and now - known[1] < settings.duplicate_window_s:
            return known[0]
        of_subject = sum(entry.work.subject == work.subject for entry in self.entries.values())
        size = sum(len(entry.work.payload) for entry in self.entries.values()) + len(work.payload)
        most = settings.max_messages_per_subject
        if len(self.entries) >= settings.max_messages or size > settings.max_bytes or (most and of_subject >= most):
            raise QueueError("FULL", "The shelf is full.")
        sequence = next(self._numbers)
        self.entries[sequence] = Entry(work, sequence)
        self.ids[work.id] = (sequence, now)
        age_s = min(settings.max_age_s, work.ttl_s or settings.max_age_s)
        asyncio.get_running_loop().call_later(age_s, self.entries.pop, sequence, None)
        self.hand_out()
        return sequence

    def declare(self, consumer):
        """Add a consumer, or change one."""
        for other in self.consumers.values():
            if other.name != consumer.name and overlap(other.subject, consumer.subject):
                raise QueueError("CONFIG", f"The consumer {consumer.name} overlaps {other.name}.")
        self.consumers[consumer.name] = consumer

    def hand_out(self):
        """Give every message that is free to the pull whose turn it is."""
        now = time.monotonic()
        for entry in list(self.entries.values()):
            for consumer in self.consumers.values():
                if not matches(consumer.subject, entry.work.subject):
                    continue
                pulls = [each for each in self.pulls if each.consumer == consumer.name and each.credit > 0]
                held = sum(each.taken_by is not None for each in self.entries.values())
                free = entry.taken_by is None and entry.free_at <= now and entry.deliveries < consumer.max_deliver
                if pulls and free and held < consumer.max_in_flight:
                    # Whoever got something longest ago.
                    pull = min(pulls, key=lambda each: each.last)
                    pull.give(entry, consumer)

    def give_back(self, entry, token, delay_s=0.0):
        """Put a message back that was taken, unless somebody else has it by now."""
        if entry.taken_by is not token or entry.sequence not in self.entries:
            return
        entry.taken_by, entry.free_at = None, time.monotonic() + delay_s
        if delay_s > 0:
            asyncio.get_running_loop().call_later(delay_s + 0.001, self.hand_out)
        else:
            self.hand_out()


class Store:
    """A key-value store."""

    def __init__(self):
        self.values = {}
        self.watches = {}
        self._numbers = itertools.count(1)

    def get(self, key):
        """Return value and revision, None where there is none."""
        return self.values.get(key)

    def put(self, key, value, ttl_s):
        """Write and return the revision."""
        revision = next(self._numbers)
        self.values[key] = (value, revision)
        if ttl_s is not None:
            asyncio.get_running_loop().call_later(ttl_s, self.remove, key, revision)
        self.tell()
        return revision

    def remove(self, key, revision=None):
        """Remove a key, or one revision of it."""
        if revision is None or (key in self.values and self.values[key][1] == revision):
            self.values.pop(key, None)
            self.tell()

    def tell(self):
        """Have every watch take what there is."""
        for take in tuple(self.watches.values()):
            take()


class Diary:
    """A journal: number and payload of each key."""

    def __init__(self, first):
        self.pages = {}
        self.last = first - 1
        self.created = secrets.token_hex(8)

    def write(self, key, payload):
        """Write and return the number."""
        self.last += 1
        self.pages[key] = (self.last, payload)
        return self.last


class Broker:
    """Everything of one name."""

    def __init__(self):
        self.shelves = {}
        self.stores = {}
        self.diaries = {}
        self.listeners = []

    def shelf(self, name):
        """Find a queue."""
        try:
            return self.shelves[name]
        except KeyError:
            raise QueueError("NOT_FOUND", f"There is no shelf {name}.") from None
