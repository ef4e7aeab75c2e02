"""A device in virtual time: the real queue and scheduler; runs take what their cost says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from types import SimpleNamespace
from typing import Any

from sie_core.batching import FairScheduler
from sie_core.batching.checked import CheckedScheduler
from sie_core.concurrency.leases import Leases
from sie_core.contracts import BatchLimits, InferenceError, Priority, QueueLimits, Scheduler, Unit
from sie_core.engine.device.batch_run import Run
from sie_core.engine.device.health import DeviceHealth
from sie_core.engine.device.on_device import OnDevice
from sie_core.engine.device.queue import DeviceQueue
from sie_core.engine.requests.inflight import FlightUnit

OVERHEAD_S = 0.002
PRICE_S = 0.00005
"""Of a cost unit."""


class Model:
    """What the queue sees of a loaded model."""

    def __init__(
        self, name: str = "test/model", run_s: float | None = 0.25, price_s: float = PRICE_S, weight: float = 1.0
    ) -> None:
        self.id, self.price_s = name, price_s
        self.pace: Callable[[], float] = lambda: 1.0
        """Times what a run takes; asked before each."""
        self.limits = BatchLimits(16384, 64, run_s, weight=weight)
        self.leases = Leases(lambda: 0.0)
        nothing = SimpleNamespace(inc=lambda cost: None)
        self.metrics = SimpleNamespace(
            ran=lambda *told: None, dropped=lambda *told: None, wasted=nothing, first_batch=None
        )


@dataclass(eq=False)
class Asked:
    """A request: `left` units have not run."""

    model: Model
    arrived: float
    deadline: float | None
    left: int
    error: InferenceError | None = None
    trace: None = None
    trace_id: None = None
    settled: bool = False
    ended: float | None = None
    client: str | None = None
    priority: Priority | None = None
    admitted: bool = False
    more_cost: int = 0
    began: float | None = None
    size: int = 0
    """Units."""
    request_id: str = "r"

    @property
    def request(self) -> Asked:
        return self

    def fail(self, error: InferenceError) -> None:
        self.error, self.settled = error, True


@dataclass
class DeviceTime:
    """The device, its queue and its clock."""

    max_queued_cost: int = 10**6
    layers: int = 1
    """Of a forward pass: between two of them another batch may preempt it."""
    ahead: int = 1
    """Batches that it is given at once."""
    make: Callable[[QueueLimits], Scheduler] = FairScheduler
    now: float = 0.0
    busy_s: float = 0.0
    """Seconds the device was at work."""
    batches: list[Any] = field(default_factory=list)
    began: list[float] = field(default_factory=list)
    """When each of them did."""
    _events: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _numbers: count[int] = field(default_factory=count)
    _running: bool = False

    def __post_init__(self) -> None:
        limits = QueueLimits(self.max_queued_cost)
        again = lambda: self.make(limits)  # noqa: E731
        self.scheduler = CheckedScheduler(again(), again, _raise)
        clock = lambda: self.now  # noqa: E731
        health = DeviceHealth(60.0, clock)
        on_device = OnDevice(self.ahead, health.unfinished)
        self.queue = DeviceQueue(self.scheduler, health, lambda: None, clock, on_device)

    def add(self, model: Model) -> Model:
        """Serve a model."""
        self.queue.add_model(model)
        return model

    def at(self, time: float, call: Callable[[], None]) -> None:
        """Have something happen."""
        heappush(self._events, (time, next(self._numbers), call))

    def run(self, until: float) -> None:
        """Let time pass."""
        while self._events and self._events[0][0] <= until:
            self.now, _, call = heappop(self._events)
            call()
            self._start()
        self.now = max(self.now, until)

    def run_all(self) -> None:
        """Let time pass until nothing waits."""
        self._start()
        while self._events:
            self.run(self._events[0][0])

    def ask(
        self,
        model: Model,
        costs: list[int],
        timeout_s: float | None = None,
        client: str | None = None,
        priority: Priority | None = None,
        key: str = "k",
    ) -> Asked:
        """Ask as a request does, with all its units at once."""
        deadline = None if timeout_s is None else self.now + timeout_s
        asked: Any = Asked(model, self.now, deadline, len(costs), client=client, priority=priority, size=len(costs))
        made = [Unit(place, cost, key, payload=None) for place, cost in enumerate(costs)]
        try:
            self.queue.submit(asked, [FlightUnit(each, asked, index=each.item, made=each) for each in made])
        except InferenceError as error:
            asked.fail(error)
        return asked

    def _start(self) -> None:
        if self._running or not self.scheduler.queued_units:
            return
        while not self._running and self.scheduler.queued_units:
            # Late requests are dropped by it; where nothing else waits it would wait for more.
            self.at_most_one_run()

    def at_most_one_run(self) -> None:
        """Have the queue drop what is late, and run the next batch."""
        queue = self.queue
        chosen = queue.take()
        if chosen is None:
            return
        self._running = True
        self.batches.append(chosen)
        self.began.append(self.now)
        for unit in chosen.units:
            if unit.request.began is None:
                unit.request.began = self.now
        layer_s = _seconds(chosen) / self.layers

        def layers(left: int) -> None:
            if not left:
                self._running = False
                self._end(chosen)
                return
            short = queue.preempting(chosen) if chosen.batch.preemptible and left < self.layers else None
            if short is None:
                self._after(layer_s, lambda: layers(left - 1))
                return

            def go_on() -> None:
                self._end(short)
                queue.resumed(chosen, short)
                self._after(layer_s, lambda: layers(left - 1))

            self._after(_seconds(short), go_on)

        layers(self.layers)

    def _after(self, seconds: float, call: Callable[[], None]) -> None:
        self.busy_s += seconds
        self.at(self.now + seconds, call)

    def _end(self, run: Run) -> None:
        self.queue.device_done(run)
        self.queue.done(run)
        for unit in run.units:
            asked: Any = unit.request
            asked.left -= 1
            if not asked.left and not asked.settled:
                asked.settled, asked.ended = True, self.now


def _seconds(run: Run) -> float:
    model: Any = run.model
    return float(OVERHEAD_S + model.price_s * run.batch.cost) * float(model.pace())


def _raise(error: BaseException) -> None:
    raise error
