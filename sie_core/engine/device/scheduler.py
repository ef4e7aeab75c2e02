"""Whose batch runs next on a device: that of the model with the oldest unit. Pure; its caller holds the lock.

It must not know threads, requests or what a batch does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

from sie_core.contracts import Batch, InferenceError, QueuedUnit
from sie_core.engine.models.loaded import LoadedModel

_MEMORY = 0.9
"""What a measured speed's weight becomes with each later one."""


class PolicyError(Exception):
    """A batch policy raised or broke its contract; its model's queue is lost, nothing else is."""

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
    """The queues of all models of one device.

    Args:
        max_queued_cost: Cost units that may wait at once. Where others fill it, a model still has an equal share of it;
            the empty queue of a model takes any request.
    """

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
        """Take a model's queue in."""
        self._models.append(model)

    def remove_model(self, model: LoadedModel) -> None:
        """Leave a model's queue out; nothing may wait in it."""
        self._models.remove(model)

    def submit(self, model: LoadedModel, units: Sequence[QueuedUnit]) -> None:
        """Queue the units of one request.

        Raises:
            InferenceError: `QUEUE_FULL`, with the time the queue takes to empty.
            PolicyError: The policy failed.
        """
        cost = sum(unit.unit.cost for unit in units)
        if not self._has_room(model, cost):
            queued, speed = self.queued_cost, self._cost_per_second
            wait = None if not speed else min(60.0, max(1.0, queued / speed))
            message = (
                f"{queued} cost units are queued, {model.policy.queued_cost} of them for {model.id}; "
                f"{cost} more exceed SIE_MAX_QUEUED_COST={self._max_queued_cost}."
            )
            raise InferenceError("QUEUE_FULL", message, retry_after_s=wait)
        try:
            model.policy.add(units)
        except Exception as error:
            raise PolicyError(model) from error

    def _has_room(self, model: LoadedModel, cost: int) -> bool:
        """Whether a request may wait: there is room in all, or the model has not had its share of it.

        So a flooded model fills the queue while it is alone, and keeps nobody else out; in all twice the limit waits at
        most, and one large request of each model.
        """
        own = model.policy.queued_cost
        if not own or self.queued_cost + cost <= self._max_queued_cost:
            return True
        waiting = sum(bool(each.policy.queued_cost) for each in self._models)
        return own + cost <= self._max_queued_cost // waiting

    def next(self, now: float, device_busy: bool) -> tuple[LoadedModel, Batch] | None:
        """Form the ready batch with the oldest unit; None where there is none.

        Raises:
            PolicyError: A policy failed.
        """
        for model in self._by_age():
            try:
                batch = model.policy.take(now, device_busy)
            except Exception as error:
                raise PolicyError(model) from error
            if batch is not None:
                return model, batch
        return None

    def ready_at(self, now: float) -> float | None:
        """When a busy device will get a batch if nothing else comes; None where nothing waits.

        Raises:
            PolicyError: A policy failed.
        """
        times: list[float] = []
        for model in self._models:
            try:
                ready_at = model.policy.ready_at(now) if model.policy.queued_units else None
            except Exception as error:
                raise PolicyError(model) from error
            if ready_at is not None:
                times.append(ready_at)
        return min(times, default=None)

    def expire(self, now: float) -> Iterator[Expired]:
        """Drop what waits beyond its deadline, model by model: what one model lost is told before the next is asked.

        Raises:
            PolicyError: A policy failed; the models after it were not asked yet.
        """
        for model in self._models:
            try:
                before = model.policy.queued_units
                requests = model.policy.expire(now) if before else None
                dropped = before - model.policy.queued_units
            except Exception as error:
                raise PolicyError(model) from error
            if requests:
                yield Expired(model, frozenset(requests), dropped)

    def record(self, model: LoadedModel, batch: Batch, seconds: float) -> None:
        """Learn how long a batch ran.

        Raises:
            PolicyError: The policy failed.
        """
        try:
            model.policy.record(batch, seconds)
        except Exception as error:
            raise PolicyError(model) from error
        if seconds > 0:
            speed, known = batch.cost / seconds, self._cost_per_second
            self._cost_per_second = speed if known is None else _MEMORY * known + (1 - _MEMORY) * speed

    def _by_age(self) -> list[LoadedModel]:
        """List the models with something queued, that with the oldest unit first."""
        waiting: list[tuple[float, int]] = []
        for number, model in enumerate(self._models):
            try:
                oldest = model.policy.oldest() if model.policy.queued_units else None
            except Exception as error:
                raise PolicyError(model) from error
            if oldest is not None:
                waiting.append((oldest, number))
        return [self._models[number] for _, number in sorted(waiting)]
