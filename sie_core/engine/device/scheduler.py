"""Whose batch runs next on a device: that of the model with the oldest unit. Pure; its caller holds the lock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from sie_core.contracts import Batch, InferenceError, QueuedUnit
from sie_core.engine.models.loaded import LoadedModel

# A measured speed weighs this much less with each later one.
_MEMORY = 0.9

Answer = TypeVar("Answer")


class PolicyError(Exception):
    """A batch policy raised or broke its contract. Every method that asks one raises this."""

    def __init__(self, model: LoadedModel) -> None:
        super().__init__(model.id)
        self.model = model


@dataclass(frozen=True, slots=True)
class Expired:
    """Requests whose deadline passed while they were queued, and how many of their units were dropped."""

    model: LoadedModel
    requests: frozenset[Hashable]
    units: int


class Scheduler:
    """The queues of all models of one device. `max_queued_cost` is in cost units, for all of them together."""

    def __init__(self, max_queued_cost: int) -> None:
        self._max_queued_cost = max_queued_cost
        self._models: list[LoadedModel] = []
        self._cost_per_second: float | None = None

    @property
    def queued_cost(self) -> int:
        """Cost units that wait."""
        return sum(model.policy.queued_cost for model in self._models)

    @property
    def queued_units(self) -> int:
        """Units that wait."""
        return sum(model.policy.queued_units for model in self._models)

    def queued_by_model(self) -> dict[str, int]:
        """Units that wait, by the id of each model; two configs of a model count together."""
        queued: Counter[str] = Counter()
        for model in self._models:
            queued[model.id] += model.policy.queued_units
        return dict(queued)

    def add_model(self, model: LoadedModel) -> None:
        """Add a model's queue."""
        self._models.append(model)

    def remove_model(self, model: LoadedModel) -> None:
        """Remove a model's queue, which is empty."""
        self._models.remove(model)

    def submit(self, model: LoadedModel, units: Sequence[QueuedUnit]) -> None:
        """Queue the units of one request, or raise `QUEUE_FULL` with the time the queue takes to empty."""
        cost = sum(unit.unit.cost for unit in units)
        if not self._has_room(model, cost):
            queued, speed = self.queued_cost, self._cost_per_second
            wait = None if not speed else min(60.0, max(1.0, queued / speed))
            message = (
                f"{queued} cost units are queued, {model.policy.queued_cost} of them for {model.id}; "
                f"{cost} more exceed SIE_MAX_QUEUED_COST={self._max_queued_cost}."
            )
            raise InferenceError("QUEUE_FULL", message, retry_after_s=wait)
        _ask(model, model.policy.add, units)

    def _has_room(self, model: LoadedModel, cost: int) -> bool:
        # An empty queue takes any request. Where others fill the whole, a model has an equal share: a flooded model
        # fills it while it is alone and keeps nobody out. At most twice the limit waits, and a large request a model.
        own = model.policy.queued_cost
        if not own or self.queued_cost + cost <= self._max_queued_cost:
            return True
        waiting = sum(bool(each.policy.queued_cost) for each in self._models)
        return own + cost <= self._max_queued_cost // waiting

    def next(self, now: float, device_busy: bool) -> tuple[LoadedModel, Batch] | None:
        """Form the ready batch with the oldest unit; None where there is none."""
        for model in self._by_age():
            batch = _ask(model, model.policy.take, now, device_busy)
            if batch is not None:
                return model, batch
        return None

    def ready_at(self, now: float) -> float | None:
        """When a busy device will get a batch if nothing else comes; None where nothing waits."""
        times = (_ask(model, model.policy.ready_at, now) for model in self._models if model.policy.queued_units)
        return min((each for each in times if each is not None), default=None)

    def expire(self, now: float) -> Iterator[Expired]:
        """Drop what waits beyond its deadline, model by model."""
        for model in self._models:
            before = model.policy.queued_units
            requests = _ask(model, model.policy.expire, now) if before else None
            # Told before the next model is asked, whose policy may raise.
            if requests:
                yield Expired(model, frozenset(requests), before - model.policy.queued_units)

    def record(self, model: LoadedModel, batch: Batch, seconds: float) -> None:
        """Learn how long a batch ran."""
        _ask(model, model.policy.record, batch, seconds)
        if seconds > 0:
            speed, known = batch.cost / seconds, self._cost_per_second
            self._cost_per_second = speed if known is None else _MEMORY * known + (1 - _MEMORY) * speed

    def _by_age(self) -> list[LoadedModel]:
        waiting: list[tuple[float, int]] = []
        for number, model in enumerate(self._models):
            oldest = _ask(model, model.policy.oldest) if model.policy.queued_units else None
            if oldest is not None:
                waiting.append((oldest, number))
        return [self._models[number] for _, number in sorted(waiting)]


def _ask(model: LoadedModel, call: Callable[..., Answer], *arguments: object) -> Answer:
    try:
        return call(*arguments)
    except Exception as error:
        raise PolicyError(model) from error
