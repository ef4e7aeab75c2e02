"""Whose batch runs next on a device, and who may still queue. Pure; its caller holds the lock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Final, Generic, TypeVar

from sie_core.batching.sharing.admission import Queue, QueueAdmission
from sie_core.batching.sharing.demand import Demand
from sie_core.batching.sharing.lending import LITTLE_S, SHORT_S, Lending
from sie_core.batching.sharing.shares import DeviceShares
from sie_core.contracts import Batch, QueuedUnit

Answer = TypeVar("Answer")
Model = TypeVar("Model", bound=Queue)

# For so long a batch may hold a device that runs each to its end, while short requests of other models come. On a GPU
# the launches of a smaller one take as long.
HELD_TO_END_S: Final = 0.005


class PolicyError(Exception):
    """A batch policy raised or broke its contract; raised by every method that asks one."""

    def __init__(self, model: Queue) -> None:
        super().__init__(model.id)
        self.model = model


class Scheduler(Generic[Model]):
    """The queues of all models of one device.

    Args:
        max_queued_cost: For all of them together.
        runs_to_end: Whether the device runs each batch to its end, and none beside it.
    """

    def __init__(self, max_queued_cost: int, *, runs_to_end: bool = False) -> None:
        self._runs_to_end = runs_to_end
        self._lending = Lending()
        self.admission = QueueAdmission(max_queued_cost)
        self._models: list[Model] = []
        self._shares: DeviceShares[Model] = DeviceShares()
        # Of those that go first. It is time of others, and is not charged to their own share.
        self._borrowers: DeviceShares[Model] = DeviceShares()

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

    def add_model(self, model: Model) -> None:
        """Add a model's queue."""
        self._models.append(model)

    def remove_model(self, model: Model) -> None:
        """Remove a model's queue, which is empty."""
        self._models.remove(model)
        self._lending.forget(model)
        self._shares.forget(model)
        self._borrowers.forget(model)
        self.admission.forget(model)

    def submit(self, model: Model, units: Sequence[QueuedUnit]) -> None:
        """Queue units of a request that was admitted."""
        _ask(model, model.policy.add, units)

    def cancel(self, model: Model, request: Hashable) -> int:
        """Remove what is queued of a request; return how many units that was."""
        return _ask(model, model.policy.cancel, request)

    def admit(self, model: Model, demand: Demand, now: float, ahead_s: float) -> None:
        """Raise `QUEUE_FULL` as `QueueAdmission.admit` does."""
        self.admission.admit(model, self._models, demand, now, ahead_s, self._lending)

    def next(
        self, now: float, device_busy: bool, *, preempting: bool = False, others_than: Model | None = None
    ) -> tuple[Model, Batch] | None:
        """Form the ready batch of the model whose turn it is first; None where there is none.

        Args:
            now: Seconds.
            device_busy: Whether the device has a batch already.
            preempting: Whether it would run in the middle of a long batch, as only one of short requests may.
            others_than: The model of that batch, where only others may preempt it of which little waits.
        """
        waiting = {}
        for model in self._models:
            oldest = _ask(model, model.policy.oldest) if model.policy.queued_units else None
            if oldest is not None:
                waiting[model] = model.policy.claims.weight, oldest
        order = self._shares.order(waiting, now)
        if not preempting:
            first = {model: waiting[model] for model in order if self._goes_first(model, now)}
            chosen = self._first(self._borrowers.order(first, now), now, device_busy, lent=True)
            if chosen is not None:
                return chosen
        if others_than is not None:
            order = [
                model for model in order if model is not others_than and self.admission.waiting_s(model) <= SHORT_S
            ]
        return self._first(order, now, device_busy, preempting=preempting, lent=others_than is not None)

    def _goes_first(self, model: Model, now: float) -> bool:
        # Little waits of it, or no more than it would have run by now had it gone first, and time is left to those of
        # its weight.
        lending, weight, waiting_s = self._lending, model.policy.claims.largest_weight, self.admission.waiting_s(model)
        if model is lending.lender or not lending.has_left(weight, waiting_s):
            return False
        return waiting_s <= max(LITTLE_S, lending.part(weight) * self._shares.waited_s(model, now))

    def _first(
        self,
        order: Sequence[Model],
        now: float,
        device_busy: bool,
        *,
        preempting: bool = False,
        lent: bool = False,
    ) -> tuple[Model, Batch] | None:
        longest_s = self.admission.longest_s(now)
        for model in order:
            claims, waiting_s = model.policy.claims, self.admission.waiting_s(model)
            weight, mean_weight = claims.largest_weight, claims.mean_weight
            hold_s = HELD_TO_END_S if self._runs_to_end and self.admission.shorts_of_others_come(model, now) else None
            batch = _ask(model, model.policy.take, now, device_busy, longest_s, preempting, hold_s)
            if batch is not None:
                seconds = batch.predicted_s or 0.0
                if lent:
                    self._borrowers.take(model, seconds, now)
                    self._shares.served(model, now)
                    self._lending.use(weight, waiting_s, seconds)
                else:
                    self._shares.take(model, seconds, now)
                    if not preempting:
                        self._lending.lend(model, mean_weight, seconds)
                self.admission.begun(model, batch, now)
                return model, batch
        return None

    def holds_up_others(self, model: Model, batch: Batch, now: float) -> bool:
        """Whether short requests of other models come just now and would wait long for the end of a batch."""
        long_s = HELD_TO_END_S if self._runs_to_end else SHORT_S
        return (batch.predicted_s or 0.0) > long_s and self.admission.shorts_of_others_come(model, now)

    def ready_at(self, now: float) -> float | None:
        """When a busy device will get a batch if nothing else comes; None where nothing waits."""
        times = (_ask(model, model.policy.ready_at, now) for model in self._models if model.policy.queued_units)
        return min((each for each in times if each is not None), default=None)

    def expire(self, now: float) -> Iterator[tuple[Model, set[Hashable], int]]:
        """Drop what waits beyond its deadline; yields a model, its requests and how many units were dropped."""
        for model in self._models:
            before = model.policy.queued_units
            requests = _ask(model, model.policy.expire, now) if before else None
            # Told before the next model is asked, whose policy may raise.
            if requests:
                self.admission.ended(model, len(requests), 0)
                yield model, requests, before - model.policy.queued_units

    def record(self, model: Model, batch: Batch, seconds: float, waited_s: float, now: float) -> None:
        """Learn how long a batch ran that ended now, and for how long those behind it have waited for it."""
        deadlines = {unit.request: unit.deadline for unit in batch.units if unit.deadline is not None}
        late = sum(deadline < now for deadline in deadlines.values())
        self.admission.ended(model, late, len(deadlines) - late)
        self._shares.charge(model, seconds - (batch.predicted_s or 0.0))
        self.admission.record(model, batch, seconds, waited_s)
        _ask(model, model.policy.record, batch, seconds)


def _ask(model: Queue, call: Callable[..., Answer], *arguments: object) -> Answer:
    try:
        return call(*arguments)
    except Exception as error:
        raise PolicyError(model) from error
