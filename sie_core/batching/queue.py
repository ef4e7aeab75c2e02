"""What waits of one model: the requests of each client, in the order in which they run.

Clients share the model by fair queueing (A. Demers, S. Keshav and S. Shenker, "Analysis and Simulation of a Fair
Queueing Algorithm", ACM SIGCOMM 1989): next is the client whose first request would end first, if all clients were
served at once. A client's own requests run by priority, then by the sum of their cost and of what the client had been
given when they came. So a short request overtakes a long one, until the client was given as much as the long one costs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heapreplace
from itertools import count
from math import exp
from operator import attrgetter
from typing import Final

from sie_core.batching.speed import SpeedTable
from sie_core.batching.sums import PrefixSums
from sie_core.contracts import BatchLimits, Priority, QueuedRequest, QueuedUnit

# The order of a client's own requests.
_RANKS: Final[dict[Priority | None, int]] = {"interactive": 0, None: 1, "bulk": 2}
# Separates the priorities in that order: no client is given so much cost while it waits.
_APART: Final = 1 << 44
# Seconds after which the pace at which clients were served tells a third as much of the pace to come.
PACE_S: Final = 1.0
COST: Final[Callable[[QueuedUnit], int]] = attrgetter("unit.cost")
# Clients that left whose share is remembered, while others wait.
_REMEMBERED: Final = 1024

Key = Hashable


@dataclass(slots=True, eq=False)
class Waiting:
    """A request of which units wait."""

    request: QueuedRequest
    client: Client
    order: int
    """Its place among the requests of its client."""
    finish: int
    """When it would be through if all clients were served at once, in virtual time."""
    size: int
    """Its cost when it came, with what is still to be added."""
    left: int = 0
    """What is left of that."""
    cost: int = 0
    """Of its units that wait."""
    units: dict[Key, deque[QueuedUnit]] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Client:
    """A client of whose requests units wait."""

    who: Hashable
    start: float
    """The virtual time up to which it was served."""
    given: int = 0
    """The cost that it was given since it began to wait."""
    requests: int = 0
    cost: int = 0
    ahead: PrefixSums = field(default_factory=PrefixSums)
    """What is left of its requests, by their order."""
    lines: dict[Key, list[tuple[int, int, Waiting]]] = field(default_factory=dict)
    """By key the requests with units of it: heaps by order."""


Fits = Callable[[int, int, Waiting], bool]


class ModelQueue:
    """The queue of one model."""

    def __init__(self, limits: BatchLimits) -> None:
        self.limits, self.speed = limits, SpeedTable()
        self.tag = 0.0
        """Seconds of the device that the model was given, over its weight."""
        self.since = 0.0
        """When it began to wait."""
        self.cost = self.units = 0
        self.requests: dict[QueuedRequest, Waiting] = {}
        self.clients: dict[Hashable, Client] = {}
        self._numbers = count()
        # The virtual time: the cost up to which a client was served that waits all the time.
        self._time = 0.0
        # How far batches moved it that left others waiting, and in how many seconds; both fade.
        self._moved = self._took_s = 0.0
        # How far the last batch moves it, 0 where it left nobody waiting, and when that batch began.
        self._moves = self._taken_at = 0.0
        # By virtual finish: what is left of all requests.
        self._ahead = PrefixSums()
        # The starts of clients of which nothing waits, where they are ahead of the time.
        self._starts: dict[Hashable, float] = {}

    def add(self, request: QueuedRequest, units: Sequence[QueuedUnit]) -> None:
        """Queue units of a request in this order."""
        cost = sum(map(COST, units))
        waiting = self.requests.get(request) or self._enter(request, cost)
        for queued in units:
            key = queued.unit.key
            if key not in waiting.units:
                waiting.units[key] = deque()
                line = waiting.client.lines.setdefault(key, [])
                heappush(line, (waiting.order, next(self._numbers), waiting))
            waiting.units[key].append(queued)
        waiting.cost += cost
        waiting.client.cost += cost
        more = waiting.cost + request.more_cost - waiting.left
        waiting.left += more
        self._book(waiting, more)
        self.cost += cost
        self.units += len(units)

    def before(self, request: QueuedRequest, cost: int) -> tuple[int, float]:
        """Judge a request that would come now with units of `cost`.

        Returns:
            The cost that would run until its end, of what waits and its own. The seconds until its end at the pace of
            late, which counts those who come later and are served first; 0 where that is not known.
        """
        size, who = cost + request.more_cost, _client(request)
        client = self.clients.get(who)
        if client is None:
            finish = self._start(who) + size
        else:
            finish = client.start + client.ahead.up_to(_order(request, client, size)) + size
        known = self._took_s >= PACE_S / 2 and self._moved > 0
        until_s = (finish - self._time) * self._took_s / self._moved if known else 0.0
        return size + self._ahead.up_to(int(finish)), until_s

    def waits(self, request: QueuedRequest) -> int:
        """Return the cost that waits of a request's client."""
        client = self.clients.get(_client(request))
        return 0 if client is None else client.cost

    def first(self) -> tuple[Key, Waiting]:
        """Return the request that is next, and the key of its first unit. Something waits."""
        _, key, waiting = min(self._heads())
        return key, waiting

    def in_turn(self) -> Iterator[Waiting]:
        """Yield the request that is next, again and again: each is to be cancelled before the next one is asked for."""
        heads = [(order, key, waiting.client) for order, key, waiting in self._heads()]
        heapify(heads)
        while heads:
            order, key, client = heads[0]
            line = client.lines.get(key)
            if not line:
                heappop(heads)
            elif (now := (_finish(client, line), line[0][1])) != order:
                heapreplace(heads, (now, key, client))
            else:
                yield line[0][2]

    def take(self, key: Key, fits: Fits | None, now: float) -> dict[Waiting, list[QueuedUnit]]:
        """Take the units that are next of a key, at least one.

        Args:
            key: Of a unit that waits.
            fits: Whether a batch of so much cost, of so many requests, may end with a unit of this one. None takes one.
            now: Seconds.

        Returns:
            The units by their requests, in the order of their turns.
        """
        heads = [
            (_finish(client, line), line[0][1], client, line)
            for client in self.clients.values()
            if (line := client.lines.get(key))
        ]
        heapify(heads)
        taken: dict[Waiting, list[QueuedUnit]] = {}
        total, clients = 0, len(self.clients)
        while heads:
            _, _, client, line = heads[0]
            waiting = line[0][2]
            unit = waiting.units[key][0]
            total += unit.unit.cost
            if taken and (fits is None or not fits(total, len(taken) + (waiting not in taken), waiting)):
                total -= unit.unit.cost
                break
            taken.setdefault(waiting, []).append(waiting.units[key].popleft())
            client.start += unit.unit.cost
            client.given += unit.unit.cost
            waiting.left -= unit.unit.cost
            if not waiting.units[key]:
                del waiting.units[key]
                _prune(line, key)
            if line:
                heapreplace(heads, (_finish(client, line), line[0][1], client, line))
            else:
                del client.lines[key]
                heappop(heads)
        for waiting, units in taken.items():
            self._take_off(waiting, len(units), sum(map(COST, units)))
        self._pass(total, clients, now)
        return taken

    def cancel(self, request: QueuedRequest) -> int:
        """Drop the units that wait of a request; return how many."""
        waiting = self.requests.get(request)
        if waiting is None:
            return 0
        units, keys = sum(map(len, waiting.units.values())), list(waiting.units)
        waiting.units.clear()
        for key in keys:
            line = waiting.client.lines[key]
            _prune(line, key)
            if not line:
                del waiting.client.lines[key]
        waiting.left -= waiting.cost
        self._take_off(waiting, units, waiting.cost)
        return units

    def _heads(self) -> Iterable[tuple[tuple[float, int], Key, Waiting]]:
        for client in self.clients.values():
            for key, line in client.lines.items():
                yield (_finish(client, line), line[0][1]), key, line[0][2]

    def _pass(self, total: int, clients: int, now: float) -> None:
        # Move the virtual time by a batch of so much cost that begins, before which so many clients waited.
        if self._moves:
            fade = exp((self._taken_at - now) / PACE_S)
            self._moved = self._moved * fade + self._moves
            self._took_s = self._took_s * fade + now - self._taken_at
        before, self._taken_at, self._moves = self._time, now, 0.0
        if self.clients:
            self._time = max(self._time + total / clients, min(each.start for each in self.clients.values()))
            self._moves = self._time - before

    def _start(self, who: Hashable) -> float:
        return max(self._time, self._starts.get(who, 0.0))

    def _enter(self, request: QueuedRequest, cost: int) -> Waiting:
        who, size = _client(request), cost + request.more_cost
        client = self.clients.get(who)
        if client is None:
            client = self.clients[who] = Client(who, self._start(who))
            self._starts.pop(who, None)
        order = _order(request, client, size)
        finish = int(client.start + client.ahead.up_to(order) + size)
        waiting = self.requests[request] = Waiting(request, client, order, finish, size)
        client.requests += 1
        return waiting

    def _book(self, waiting: Waiting, amount: int) -> None:
        # Count so much more as left of a request for those that come after it.
        waiting.client.ahead.add(waiting.order, amount)
        self._ahead.add(waiting.finish, amount)

    def _take_off(self, waiting: Waiting, units: int, cost: int) -> None:
        # Count units of a request as waiting no longer; `left` has their cost no more.
        client = waiting.client
        self.units -= units
        self.cost -= cost
        waiting.cost -= cost
        client.cost -= cost
        if waiting.units:
            self._book(waiting, -cost)
            return
        self._book(waiting, -cost - waiting.left)
        del self.requests[waiting.request]
        client.requests -= 1
        if not client.requests:
            self._leave(client, known=waiting.request.client is not None)

    def _leave(self, client: Client, *, known: bool) -> None:
        del self.clients[client.who]
        if not self.clients:  # whoever comes next finds neither a share nor a pace of before
            self._time = self._moved = self._took_s = self._moves = 0.0
            self._starts.clear()
            return
        if known:
            self._starts[client.who] = client.start
        if len(self._starts) > _REMEMBERED:
            self._starts = {who: start for who, start in self._starts.items() if start > self._time}


def _prune(line: list[tuple[int, int, Waiting]], key: Key) -> None:
    # Drop leading requests of which nothing of the key waits; what was cancelled in the middle stays until it leads.
    while line and key not in line[0][2].units:
        heappop(line)


def _client(request: QueuedRequest) -> Hashable:
    return request if request.client is None else request.client


def _order(request: QueuedRequest, client: Client, size: int) -> int:
    return _RANKS.get(request.priority, 1) * _APART + client.given + size


def _finish(client: Client, line: list[tuple[int, int, Waiting]]) -> float:
    return client.start + line[0][2].left
