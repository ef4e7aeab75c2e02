"""What surrounds a request's slices: an event loop, CPU threads, a queue and a model, each one step at a time.

Slices, assembly, room, splits and deliveries are the engine's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from types import SimpleNamespace
from typing import Any

from sie_core.concurrency.leases import Leases
from sie_core.concurrency.pool import Work
from sie_core.contracts import Batch, InferenceError, Item, ItemOutput, ModelFacts, Task, Unit
from sie_core.engine.device.batch_run import Run

BATCH_COST = 6


class Future:
    """A future that counts how often it is answered."""

    def __init__(self) -> None:
        self.answers: list[Any] = []
        self.off = False

    def done(self) -> bool:
        return bool(self.answers) or self.off

    def cancelled(self) -> bool:
        return self.off

    def cancel(self) -> None:
        self.off = True

    def set_result(self, answer: Any) -> None:
        self.answers.append(answer)

    def set_exception(self, error: BaseException) -> None:
        self.answers.append(error)

    def exception(self) -> None: ...


class Loop:
    """An event loop whose calls are made when the test says so."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def create_future(self) -> Future:
        return Future()

    def call_soon_threadsafe(self, call: Any, *arguments: Any) -> None:
        self.calls.append((call, arguments))


class Threads:
    """CPU threads: what waits for one."""

    def __init__(self) -> None:
        self.waiting: list[Work] = []

    def submit(self, call: Any, *arguments: Any, quick: bool = False) -> Work:
        self.waiting.append(Work(call, arguments))
        return self.waiting[-1]

    def remove(self, work: Work) -> bool:
        found = work in self.waiting
        if found:
            self.waiting.remove(work)
        return found


class Queue:
    """Units that wait for the device, in any order."""

    def __init__(self, random: Random, model: Any) -> None:
        self.units: list[Any] = []
        # What the device's thread is to call: at most one.
        self.calls: list[Any] = []
        self.refuses = 0.0
        self._random, self._model = random, model

    def queued(self) -> tuple[int, int]:
        return len(self.units), sum(unit.unit.cost for unit in self.units)

    def submit(self, flight: Any, units: Sequence[Any]) -> None:
        if not flight.admitted and self._random.random() < self.refuses:
            raise InferenceError("QUEUE_FULL", "no room")
        flight.admitted = True
        self.units += units

    def call_if_idle(self, call: Any) -> bool:
        idle = not self.units and not self.calls and self._random.random() < 0.8
        if idle:
            self.calls.append(call)
        return idle

    def cancel(self, flight: Any) -> None:
        self.units = [unit for unit in self.units if unit.request is not flight]

    def take(self) -> Run:
        """Make a batch of some units."""
        self._random.shuffle(self.units)
        count = self._random.randint(1, len(self.units))
        chosen, self.units = self.units[:count], self.units[count:]
        cost = sum(unit.unit.cost for unit in chosen)
        batch = Batch(self._model, tuple(sorted(chosen, key=lambda unit: unit.unit.cost)), cost)
        return Run(self._model, batch, lease=self._model.leases.acquire())


class Adapter:
    """Scores: an item's score is the sum of its units' numbers."""

    def __init__(self) -> None:
        self.facts = ModelFacts()

    def prepare(self, items: Sequence[Item], task: Task) -> Iterator[Unit]:
        for place, item in enumerate(items):
            for payload in item.metadata["units"]:  # type: ignore[index]
                if payload == "refused":
                    raise InferenceError("INVALID_INPUT", "refused")
                yield Unit(
                    place, payload["cost"], None, payload=payload, tokens=payload["tokens"], nbytes=payload["cost"]
                )

    def combine(self, units: Sequence[Unit], outputs: Sequence[ItemOutput]) -> ItemOutput:
        return ItemOutput(score=sum(output.score or 0.0 for output in outputs))


def model() -> Any:
    """Make a loaded model."""
    nothing = SimpleNamespace(inc=lambda *_: None)
    metrics = SimpleNamespace(dropped=lambda *_: None, non_finite=nothing)
    limits = SimpleNamespace(max_cost=BATCH_COST)
    adapter = Adapter()
    made = SimpleNamespace(id="m", adapter=adapter, facts=adapter.facts, metrics=metrics, limits=limits)
    made.leases, made.prepare_s = Leases(clock=lambda: 0.0), 0.0
    return made
