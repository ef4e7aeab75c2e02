"""Which requests a gateway takes: it refuses what would wait too long. The broker refuses what its stream cannot hold.

Nothing here knows the broker; the clock is given.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from sie_cluster.gateway.capacity.lanes import Labels, Lane
from sie_core.batching.booking import Booking
from sie_core.batching.speed import SpeedTable
from sie_core.contracts import InferenceError

MOST_WAIT_S = 30.0
"""A request that would wait for longer is refused: its client is better told so at once."""
MARGIN = 1.1
"""Times what is predicted, it must be within the time that is left."""
FORGET_S = 120.0
"""What was answered longer ago tells nothing."""
MEASURED_S, MEASURED = 1.0, 16
"""Seconds under load, and requests of a size answered in them, before they tell how long others take."""
LOADED = 16
"""Requests of a key in flight that make workers as fast as they are: fewer are not batched as well, teach nothing, and
are never refused for their wait."""
ALIKE = 8.0
"""Times the largest measured cost up to which requests take so many times as long: short ones teach nothing about long
ones."""
SHARE = 0.75
"""Of the places that others leave, a key may have so many."""
MOST_KEYS = 4096
"""Keys that are remembered while nothing of them is in flight."""


@dataclass(slots=True, eq=False)
class Ticket:
    """One request in flight."""

    key: Key
    size: Size
    cost: float
    since: float


@dataclass(slots=True, eq=False)
class Size:
    """The requests of a key that are of about one size, within a factor of two."""

    requests: int = 0
    """In flight."""
    cost: float = 0.0
    """Of these."""
    is_measured: bool = False
    """Whether answers are counted: from the first under load on, as a load may be waited for before it."""
    answers: int = 0
    """How many were answered under load since the speed of the size was recorded last, their cost, and the seconds."""
    answered: float = 0.0
    seconds: float = 0.0

    def clear(self) -> None:
        """Begin to count answers anew."""
        self.answers, self.answered, self.seconds = 0, 0.0, 0.0


@dataclass(slots=True, eq=False)
class Key:
    """What is in flight of one subject, and by size how fast it is answered under load.

    While sizes are in flight together, each has a part of the time by its part of the cost.
    """

    lane: Lane
    subject: str
    tickets: dict[Ticket, None] = field(default_factory=dict)
    """In the order they came."""
    sizes: dict[int, Size] = field(default_factory=dict)
    """By the power of two of their cost."""
    cost: float = 0.0
    at: float = 0.0
    speeds: SpeedTable = field(default_factory=SpeedTable)
    """How long a request takes under load, by its cost."""
    answered_at: float = 0.0
    """When one was answered under load."""
    booking: Booking = field(default_factory=Booking)

    def pass_time(self, now: float) -> None:
        """Count the time until now."""
        elapsed_s, self.at = now - self.at, now
        if now - self.answered_at > FORGET_S:
            self.speeds = SpeedTable()
            for size in self.sizes.values():
                size.clear()
        if not elapsed_s or len(self.tickets) < LOADED:
            return
        for size in self.sizes.values():
            if size.answers >= MEASURED and size.seconds >= MEASURED_S:
                self.speeds.record(max(1, round(size.answered / size.answers)), size.seconds / size.answers)
                size.clear()
            if size.is_measured:
                size.seconds += elapsed_s * size.cost / self.cost

    def wait_s(self, cost: float = 0.0) -> float:
        """Predict how long what is in flight takes, with a further request of a cost; 0 where nothing is known.

        What other gateways have waits beside it, and is answered beside it as well.
        """
        in_flight = [each for each in self.sizes.values() if each.requests]
        waiting_s = sum(each.requests * self._one_s(each.cost / each.requests) for each in in_flight)
        return waiting_s + (self._one_s(cost) if cost else 0.0)

    def _one_s(self, cost: float) -> float:
        """Predict how long one takes at least."""
        return self.speeds.predict(min(cost, ALIKE * self.speeds.largest)) or 0.0

    def take(self, cost: float, now: float) -> Ticket:
        """Count a request in flight."""
        size = self.sizes.setdefault(int(cost).bit_length(), Size())
        ticket = Ticket(self, size, cost, now)
        self.tickets[ticket] = None
        for each in (self, size):
            each.cost += cost
        size.requests += 1
        return ticket

    def give(self, ticket: Ticket, *, answered: bool) -> None:
        """Count a request in flight no longer."""
        size = ticket.size
        if answered and len(self.tickets) >= LOADED:
            self.answered_at = self.at
            if size.is_measured:
                size.answers += 1
                size.answered += ticket.cost
            size.is_measured = True
        del self.tickets[ticket]
        for each in (self, size):
            each.cost -= ticket.cost
        size.requests -= 1


class Admission:
    """The requests of one gateway that are in flight.

    Args:
        places: Requests in flight that this gateway admits.
        clock: Monotonic seconds.
    """

    def __init__(self, places: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._places, self._clock = places, clock
        self.refused: Counter[Labels] = Counter()
        self._keys: dict[str, Key] = {}
        self._in_flight = 0

    def enter(self, lane: Lane, subject: str, cost: float, left_s: float) -> Ticket:
        """Admit a request; `leave` must follow.

        Args:
            lane: Where it goes.
            subject: Its key.
            cost: Of its slices that are in the queue at a time.
            left_s: Until its deadline.

        Raises:
            InferenceError: `QUEUE_FULL`, with the time to come back where it is known.
        """
        now = self._clock()
        key = self._keys.get(subject) or self._new(lane, subject, now)
        key.pass_time(now)
        if key.tickets:  # an empty queue takes any request
            self._check(key, cost, left_s, now)
        self._in_flight += 1
        return key.take(cost, now)

    def leave(self, ticket: Ticket, *, answered: bool) -> None:
        """Count a request no longer."""
        key = ticket.key
        key.pass_time(self._clock())
        key.give(ticket, answered=answered)
        self._in_flight -= 1

    def busy(self) -> Iterator[Key]:
        """Iterate over the keys that something is in flight of."""
        return (key for key in self._keys.values() if key.tickets)

    def _new(self, lane: Lane, subject: str, now: float) -> Key:
        if len(self._keys) >= MOST_KEYS:
            self._keys = {name: key for name, key in self._keys.items() if key.tickets}
        key = self._keys[subject] = Key(lane, subject, at=now)
        return key

    def _check(self, key: Key, cost: float, left_s: float, now: float) -> None:
        others = self._in_flight - len(key.tickets)
        if len(key.tickets) >= SHARE * (self._places - others):
            raise self._full(key, 0.0, f"{len(key.tickets)} requests of it are in flight", now)
        if len(key.tickets) < LOADED:  # few are answered otherwise than what was measured
            return
        wait_s, most_s = key.wait_s(cost), min(MOST_WAIT_S, left_s / MARGIN)
        if wait_s > most_s:
            raise self._full(key, wait_s - most_s, f"it would take about {wait_s:.1f} s", now)

    def _full(self, key: Key, free_s: float, why: str, now: float) -> InferenceError:
        self.refused[key.lane.labels] += 1
        one_s = key.wait_s() / len(key.tickets)
        after_s = key.booking.retry_after_s(now, max(free_s, one_s), one_s) if one_s else None
        told = f"The queue of this model is full: {why}; retry later."
        return InferenceError("QUEUE_FULL", told, retry_after_s=after_s)
