"""Serves requests by weighted shares of cost, however many units each of them has queued.

A flow is a request. The flow whose turn would end first, if all were served at once, runs first: weighted fair
queueing (A. Demers, S. Keshav and S. Shenker, "Analysis and Simulation of a Fair Queueing Algorithm", ACM SIGCOMM 1989)
over turns instead of packets. A flow that is ahead of its share waits until its turn begins (`Turns`). A request that
fits into one turn, or has a deadline, runs whole, as E. J. Friedman and S. G. Henderson show to be best for it
("Fairness and Efficiency in Web Server Protocols", ACM SIGMETRICS 2003).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from sie_core.batching.flow import Client, Flow, Turns
from sie_core.batching.virtual_time import VirtualTime
from sie_core.contracts import QueuedUnit
from sie_core.contracts.device.batching import AGE_S


@dataclass(slots=True)
class Lane:
    """The queued units of one inference key: their cost, and the flows they belong to."""

    cost: int = 0
    turns: Turns = field(default_factory=Turns)


class FairQueue:
    """The queued units of one model. Adding or taking a unit costs O(log n), dropping a request as much."""

    def __init__(self) -> None:
        self.lanes: dict[Hashable, Lane] = {}
        self.cost = 0
        self.units = 0
        self.flows: dict[Hashable, Flow] = {}
        self._turns = Turns()
        self._clients: dict[Hashable, Client] = {}
        # Clients by when they were served last, or began to wait: many requests of one of them must not each lead a
        # batch before others.
        self._unserved: OrderedDict[Client, float] = OrderedDict()
        # Whether somebody led the last batch for its age.
        self._led_by_age = False
        self.time = VirtualTime()
        self._next_ticket = 0

    def add(self, units: Sequence[QueuedUnit], quantum: float) -> list[Flow]:
        """Queue units in this order; returns their flows."""
        touched: dict[Flow, bool] = {}
        for queued in units:
            flow = self.flows.get(queued.request)
            if flow is None:
                flow = self._enter(queued)
                touched[flow] = True
            flow.several = flow.several or bool(flow.units)
            touched.setdefault(flow, False)
            key, cost = queued.unit.key, queued.unit.cost
            flow.units.setdefault(key, deque()).append((self._next_ticket, queued))
            flow.cost += cost
            if queued.deadline is not None:
                flow.deadline = queued.deadline if flow.deadline is None else min(flow.deadline, queued.deadline)
            lane = self.lanes.get(key)
            if lane is None:
                lane = self.lanes[key] = Lane()
            lane.cost += cost
            self.cost += cost
            self._next_ticket += 1
        self.units += len(units)
        for flow, new in touched.items():
            flow.largest = max(flow.largest, flow.cost * flow.slices)
            if new:
                flow.begin_turn(quantum)
            self._put(flow)
        return list(touched)

    def next(self, now: float) -> Flow | None:
        """Return the flow whose oldest unit is to run next."""
        return self.aged(now) or self.by_share()

    def by_share(self) -> Flow | None:
        """Return the flow whose turn it is by share alone, whatever the age of others."""
        return self._turns.first(self.time.now)

    def aged(self, now: float) -> Flow | None:
        """Return the flow that is to lead the next batch for its client's age, whatever its share; None where none is.

        Shares alone serve everybody too, but where hundreds are before a client, or its weight is small, only after
        minutes. Beside n that have waited longer it is served within `AGE_S`, the batch that runs then, and 2 n more:
        every other one is led by shares, as weights would count for nothing where all have waited for long.
        """
        client = next(iter(self._unserved), None)
        if self._led_by_age or client is None or self._unserved[client] + AGE_S > now:
            return None
        return next(iter(client.flows))

    def longest_unserved(self) -> Flow | None:
        """Return the flow of the client that has waited longest since it was served or began to wait."""
        client = next(iter(self._unserved), None)
        return None if client is None else next(iter(client.flows))

    def take(self, flow: Flow, key: Hashable, quantum: float) -> QueuedUnit:
        """Remove the oldest unit of a flow and a key, to run it."""
        flow.started = True
        units, lane = flow.units[key], self.lanes[key]
        queued = units.popleft()[1]
        cost = queued.unit.cost
        flow.cost -= cost
        flow.left -= cost
        lane.cost -= cost
        self.cost -= cost
        self.units -= 1
        if not units:
            self._leave_lane(flow, key)
        if not flow.units:
            self._leave(flow)
        elif flow.left <= 0:
            flow.begin_turn(quantum)
            self._put(flow)
        return queued

    def served(self, flows: Sequence[Flow], cost: float, now: float, *, led_by_age: bool) -> None:
        """Note that a batch of `cost` took units of `flows`; `led_by_age` says whether `aged` chose the first."""
        self._led_by_age = led_by_age
        for flow in flows:
            client = flow.client
            if flow in client.flows:
                client.flows.move_to_end(flow)
            if client in self._unserved:
                self._unserved[client] = now
                self._unserved.move_to_end(client)
        self.time.advance(cost)

    def remove(self, request: Hashable) -> int:
        """Drop every unit of a request; returns how many there were."""
        flow = self.flows.get(request)
        if flow is None:
            return 0
        dropped = 0
        for key in list(flow.units):
            units = flow.units[key]
            cost = sum(queued.unit.cost for _, queued in units)
            self.lanes[key].cost -= cost
            self.cost -= cost
            dropped += len(units)
            self._leave_lane(flow, key)
        self.units -= dropped
        self._leave(flow)
        return dropped

    def _enter(self, queued: QueuedUnit) -> Flow:
        client = Client(None, queued.weight)
        if queued.client is not None:
            name = (queued.client, queued.weight)
            client = self._clients.setdefault(name, Client(name, queued.weight))
        if not client.flows:
            self.time.enter(client.weight)
            self._unserved[client] = queued.enqueued_at
        flow = Flow(self._next_ticket, queued.request, client, slices=queued.slices, finish=self.time.now)
        self.flows[queued.request] = flow
        client.flows[flow] = None
        return flow

    def _put(self, flow: Flow) -> None:
        self._turns.put(flow)
        for key in flow.units:
            self.lanes[key].turns.put(flow)

    def _leave_lane(self, flow: Flow, key: Hashable) -> None:
        turns = self.lanes[key].turns
        turns.remove(flow)
        del flow.units[key]
        if not turns.flows:
            del self.lanes[key]

    def _leave(self, flow: Flow) -> None:
        self._turns.remove(flow)
        del self.flows[flow.request], flow.client.flows[flow]
        flow.request = None  # an outdated entry of a heap must not keep its body alive
        if not flow.client.flows:
            del self._unserved[flow.client]
            self.time.leave(flow.client.weight, flow.finish - flow.left * flow.pace, last=not self.flows)
            self._clients.pop(flow.client.name, None)
