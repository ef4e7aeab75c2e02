"""A request in the fair order: its queued units, and when its next turn ends."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from sie_core.contracts import QueuedUnit

# A heap is rebuilt when its outdated entries outnumber the valid ones by more than this.
_SLACK = 64


@dataclass(slots=True, eq=False)
class Client:
    """Whose requests share a weight; without a name it is that of one request."""

    name: Hashable | None
    weight: float
    # Its requests, the one that was served or queued longest ago first.
    flows: OrderedDict[Flow, None] = field(default_factory=OrderedDict)


@dataclass(slots=True, eq=False)
class Flow:
    """The queued units of one request, oldest first for each inference key."""

    number: int
    request: Hashable
    client: Client
    # The units and their tickets (their number in order of arrival), by inference key.
    units: dict[Hashable, deque[tuple[int, QueuedUnit]]] = field(default_factory=dict)
    cost: int = 0
    # In how many requests like it the client's one was cut.
    slices: int = 1
    # The most it ever had queued at once, with as much of each other slice, and whether that was several units.
    largest: int = 0
    several: bool = False
    deadline: float | None = None
    # The virtual times at which its turn begins and ends, and the cost units that are left of the turn.
    start: float = 0.0
    finish: float = 0.0
    left: float = 0.0
    # What a turn of one cost unit takes of virtual time: 1 over its weight.
    pace: float = 1.0
    started: bool = False

    def key(self) -> Hashable:
        """Return the inference key of the oldest unit."""
        return min(self.units, key=lambda key: self.units[key][0][0]) if len(self.units) > 1 else next(iter(self.units))

    def begin_turn(self, quantum: float) -> None:
        """Plan the next turn behind the last one, of all that is queued but `quantum`, or one unit, at most.

        With a deadline it is of all: what runs of such a request is of no use before its end, and several that ran in
        turns would all be late. In one turn each is through no later than it would be in many.
        """
        turn = float(self.cost)
        if self.deadline is None and turn > quantum:
            turn = max(quantum, self.units[self.key()][0][1].unit.cost)
        self.pace = len(self.client.flows) / self.client.weight
        self.finish += (turn - self.left) * self.pace  # what it ran beyond its last turn counts
        self.start = self.finish - turn * self.pace
        self.left = turn


class Turns:
    """Flows by the end of their turns, of those whose turn has begun; among equals the one that came first.

    A flow whose turn has not begun has had more than its share, and is next only where all have: worst-case fair
    weighted fair queueing (J. Bennett and H. Zhang, "WF2Q", IEEE INFOCOM 1996). Otherwise a flow of large weight
    would have many turns in a row, and then none for long.
    """

    def __init__(self) -> None:
        self.flows: dict[Flow, None] = {}
        # An entry is outdated when the flow has left, or has another turn by now.
        self._begun: list[tuple[float, int, Flow]] = []
        self._later: list[tuple[float, float, int, Flow]] = []

    def put(self, flow: Flow) -> None:
        """Add a flow, or take note of its next turn."""
        self.flows[flow] = None
        heappush(self._later, (flow.start, flow.finish, flow.number, flow))
        if len(self._begun) + len(self._later) > 2 * len(self.flows) + _SLACK:  # memory shrinks with the queue
            self._begun.clear()
            self._later = [(each.start, each.finish, each.number, each) for each in self.flows]
            heapify(self._later)

    def remove(self, flow: Flow) -> None:
        """Remove a flow."""
        del self.flows[flow]
        if not self.flows:
            self._begun.clear()
            self._later.clear()

    def first(self, now: float) -> Flow | None:
        """Return the flow whose turn is next at a virtual time; None where there is none."""
        later, begun = self._later, self._begun
        while later:
            start, finish, number, flow = later[0]
            valid = flow.finish == finish and flow.start == start and flow in self.flows
            if valid and start > now:
                break
            heappop(later)
            if valid:
                heappush(begun, (finish, number, flow))
        while begun:
            finish, _, flow = begun[0]
            if flow.finish == finish and flow in self.flows:
                return flow
            heappop(begun)
        return later[0][3] if later else None
