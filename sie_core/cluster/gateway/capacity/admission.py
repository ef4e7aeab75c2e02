"""Which requests a gateway takes: it refuses what would wait too long. The broker refuses what its stream cannot hold.

Nothing here knows the broker; the clock is given.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from math import exp

from sie_core.batching.sharing.promises import Promises
from sie_core.cluster.gateway.capacity.lanes import Labels, Lane
from sie_core.contracts import InferenceError

MOST_WAIT_S = 30.0
"""A request that would wait for longer is refused: its client is better told so at once."""
MARGIN = 1.1
"""Times what is predicted, it must be within the time that is left."""
MEMORY_S = 8.0
"""What was answered so many seconds ago tells a third as much of the rate as what is answered now."""
MEASURED_S, MEASURED = 1.0, 64
"""Seconds under load, and requests answered in them, before the rate counts: the first ones may wait for a load."""
LOADED = 16
"""Requests of a key in flight that make workers as fast as they are: fewer are not batched as well."""
SHARE = 0.75
"""Of the places that others leave, a key may have so many."""
MOST_KEYS = 4096
"""Keys that are remembered while nothing of them is in flight."""


@dataclass(slots=True, eq=False)
class Ticket:
    """One request in flight."""

    key: Key
    cost: float
    since: float


@dataclass(slots=True, eq=False)
class Key:
    """What is in flight of one subject, and how fast it is answered under load."""

    lane: Lane
    subject: str
    tickets: dict[Ticket, None] = field(default_factory=dict)
    """In the order they came."""
    cost: float = 0.0
    at: float = 0.0
    answered: float = 0.0
    """Cost that was answered, and the seconds under load that it took; both fade."""
    loaded_s: float = 0.0
    measured: int = 0
    """Requests that were answered under load."""
    promises: Promises | None = None

    def pass_time(self, now: float) -> None:
        """Let what was measured fade until now."""
        elapsed_s, self.at = now - self.at, now
        if len(self.tickets) >= LOADED:
            faded = exp(-elapsed_s / MEMORY_S)
            self.answered *= faded
            self.loaded_s = self.loaded_s * faded + elapsed_s

    def wait_s(self, cost: float) -> float:
        """Predict how long so much waits until it is answered; 0 where nothing is known.

        What other gateways have waits beside it, and is answered beside it as well.
        """
        known = self.loaded_s >= MEASURED_S and self.measured >= MEASURED
        return cost * self.loaded_s / self.answered if known else 0.0


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

    def enter(self, lane: Lane, subject: str, cost: float, left_s: float, token: Callable[[], Hashable]) -> Ticket:
        """Admit a request; `leave` must follow.

        Args:
            lane: Where it goes.
            subject: Its key.
            cost: Of its slices that are in the queue at a time.
            left_s: Until its deadline.
            token: Gives what a request that is sent again has in common with itself.

        Raises:
            InferenceError: `QUEUE_FULL`, with the time to come back where it is known.
        """
        now = self._clock()
        key = self._keys.get(subject) or self._new(lane, subject, now)
        key.pass_time(now)
        if key.tickets:  # an empty queue takes any request
            self._check(key, cost, left_s, now, token)
        ticket = Ticket(key, cost, now)
        key.tickets[ticket] = None
        key.cost += cost
        self._in_flight += 1
        return ticket

    def leave(self, ticket: Ticket, *, answered: bool) -> None:
        """Count a request no longer."""
        key = ticket.key
        key.pass_time(self._clock())
        if answered and len(key.tickets) >= LOADED:
            key.answered += ticket.cost
            key.measured += 1
        del key.tickets[ticket]
        key.cost -= ticket.cost
        self._in_flight -= 1

    def busy(self) -> Iterator[Key]:
        """Iterate over the keys that something is in flight of."""
        return (key for key in self._keys.values() if key.tickets)

    def _new(self, lane: Lane, subject: str, now: float) -> Key:
        if len(self._keys) >= MOST_KEYS:
            self._keys = {name: key for name, key in self._keys.items() if key.tickets}
        key = self._keys[subject] = Key(lane, subject, at=now)
        return key

    def _check(self, key: Key, cost: float, left_s: float, now: float, token: Callable[[], Hashable]) -> None:
        others = self._in_flight - len(key.tickets)
        if len(key.tickets) >= SHARE * (self._places - others):
            raise self._full(key, 0.0, f"{len(key.tickets)} requests of it are in flight", now, token)
        wait_s, most_s = key.wait_s(key.cost + cost), min(MOST_WAIT_S, left_s / MARGIN)
        if wait_s <= most_s or (wait_s <= 2 * most_s and key.promises and key.promises.keep(token(), now)):
            return
        raise self._full(key, wait_s - most_s, f"it would take about {wait_s:.2g} s", now, token)

    def _full(self, key: Key, free_s: float, why: str, now: float, token: Callable[[], Hashable]) -> InferenceError:
        self.refused[key.lane.labels] += 1
        mean = key.cost / len(key.tickets)
        one_s = key.wait_s(mean)
        after_s = None
        if one_s:
            key.promises = key.promises or Promises()
            after_s = key.promises.make(token(), now + max(free_s, one_s), one_s, now)
        told = f"The queue of this model is full: {why}; retry later."
        return InferenceError("QUEUE_FULL", told, retry_after_s=after_s)
