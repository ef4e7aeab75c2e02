"""Checks a scheduler against its contract: every unit comes back once, and an idle device never waits.

Schedulers may come from plugins, and one that loses a unit would hang a request.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from math import isfinite
from typing import TypeVar

from sie_core.batching.queue import COST
from sie_core.contracts import (
    Batch,
    BatchLimits,
    InferenceError,
    QueuedModel,
    QueuedRequest,
    QueuedUnit,
    QueueLimits,
    Scheduler,
)
from sie_core.plugins import PluginSet
from sie_core.plugins.interfaces.signatures import require
from sie_core.plugins.selection import make_chosen
from sie_core.settings import Settings

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")

HOOK = "sie_schedulers"
DEFAULT: str = Settings.model_fields["scheduler"].default


class BrokenScheduler(Exception):
    """A scheduler raised or broke its contract; the message says how."""


def make_scheduler(plugins: PluginSet, name: str, limits: QueueLimits) -> CheckedScheduler:
    """Make the scheduler that `SIE_SCHEDULER` names; the default one takes its place if it cannot be made, or fails.

    Raises:
        PluginError: There is none of that name, or the default one cannot be made.
    """

    default = DEFAULT if DEFAULT in plugins.schedulers else name

    def make(name: str) -> Scheduler:
        scheduler = plugins.scheduler(name)(limits)
        require(scheduler, Scheduler)
        return scheduler

    def report(error: BaseException) -> str | None:
        failed = default if checked.problem else name
        who = plugins.faulty(HOOK, failed, f"failed ({type(error).__name__})", error)
        return None if failed == default else f"{who} failed: {default!r} serves until a restart"

    scheduler, problem = make_chosen(plugins, HOOK, "SIE_SCHEDULER", name, default, make)
    checked = CheckedScheduler(scheduler, lambda: make(default), report, problem)
    return checked


class CheckedScheduler:
    """A `Scheduler` over another one; raises `BrokenScheduler` where the other raises or breaks its contract.

    Args:
        scheduler: The other.
        again: Makes one that takes its place, after a failure.
        report: Called with the failure; says why new requests are unwelcome until a restart, or None.
        problem: Why they are from the start on.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        again: Callable[[], Scheduler],
        report: Callable[[BaseException], str | None],
        problem: str | None = None,
    ) -> None:
        self._scheduler, self._again, self._report = scheduler, again, report
        self.problem = problem
        """Why new requests are unwelcome until a restart: the scheduler that was chosen does not serve."""
        self._models: dict[QueuedModel, BatchLimits] = {}
        # The units that wait, by their requests.
        self._waiting: dict[QueuedRequest, set[QueuedUnit]] = {}
        self._units: Counter[QueuedModel] = Counter()
        self.queued_units = self.queued_cost = 0

    def queued_by_model(self) -> dict[str, int]:
        """Return how many units wait, by the id of each model; two configs of a model count together."""
        queued: Counter[str] = Counter()
        for model in list(self._models):
            queued[model.id] += self._units[model]
        return dict(queued)

    def add_model(self, model: QueuedModel, limits: BatchLimits) -> None:
        """Serve a model from now on."""
        self._models[model] = limits
        self._ask(self._scheduler.add_model, model, limits)

    def remove_model(self, model: QueuedModel) -> None:
        """Forget a model, of which nothing waits."""
        self._models.pop(model, None)
        self._units.pop(model, None)
        self._ask(self._scheduler.remove_model, model)

    def add(self, request: QueuedRequest, units: Sequence[QueuedUnit], now: float) -> None:
        """Queue units of a request, or raise `QUEUE_FULL`."""
        try:
            self._scheduler.add(request, units, now)
        except InferenceError as error:
            if request.admitted:
                raise BrokenScheduler("add refused a request that it had admitted") from error
            raise
        except Exception as error:
            raise BrokenScheduler(f"add raised {type(error).__name__}") from error
        self._waiting.setdefault(request, set()).update(units)
        self._count(request.model, len(units), sum(map(COST, units)))

    def late(self, now: float) -> list[tuple[QueuedRequest, int]]:
        """Drop the requests that cannot be answered in time any more; return each with its number of units."""
        late = self._ask(self._scheduler.late, now)
        return [] if late == [] else self._ask(self._forget_all, late)

    def next(self, now: float, *, ahead: bool = False, within: Batch | None = None) -> Batch | None:
        """Form the next batch; a preemptible one, or one behind another, only where that is worth it."""
        return self._ask(self._next, now, ahead, within)

    def _next(self, now: float, ahead: bool, within: Batch | None) -> Batch | None:
        batch = self._scheduler.next(now, ahead=ahead, within=within)
        if batch is None:
            if self.queued_units and not ahead and within is None:
                raise BrokenScheduler(f"next gave an idle device no batch though {self.queued_units} units are queued")
            return None
        if not isinstance(batch, Batch) or not batch.units:
            raise BrokenScheduler(f"next returned {batch!r:.100}, which is no batch of units")
        predicted_s = batch.predicted_s
        if predicted_s is not None and not (isinstance(predicted_s, int | float) and isfinite(predicted_s)):
            raise BrokenScheduler(f"predicted_s is {predicted_s!r:.100}, and should be seconds")
        self._take(batch)
        return batch

    def ran(self, batch: Batch, seconds: float | None, now: float) -> None:
        """Note that a batch has left the device."""
        self._ask(self._scheduler.ran, batch, seconds, now)

    def cancel(self, request: QueuedRequest) -> int:
        """Drop every queued unit of a request; return how many."""
        dropped = self._forget(request)
        if dropped:
            self._ask(self._scheduler.cancel, request)
        return len(dropped)

    def lose(self, error: BaseException) -> None:
        """Drop everything that waits, report `error`, and go on with a new scheduler, the default one."""
        self.problem = self._report(error.__cause__ or error) or self.problem
        self._waiting.clear()
        self._units.clear()
        self.queued_units = self.queued_cost = 0
        try:
            scheduler = self._again()
            for model, limits in self._models.items():
                scheduler.add_model(model, limits)
            self._scheduler = scheduler
        except Exception:
            log.exception("the scheduler cannot be made again; the old one is used on")

    def _ask(self, call: Callable[..., Answer], *arguments: object) -> Answer:
        try:
            return call(*arguments)
        except BrokenScheduler:
            raise
        except Exception as error:
            raise BrokenScheduler(f"it raised {type(error).__name__}, or returned what is of no such type") from error

    def _take(self, batch: Batch) -> None:
        if batch.model not in self._models:
            raise BrokenScheduler(f"a batch is of {batch.model!r:.100}, which is not served")
        keys, cost = set(), 0
        for queued in batch.units:
            waiting = self._waiting.get(queued.request) if isinstance(queued, QueuedUnit) else None
            if waiting is None or queued not in waiting:
                raise BrokenScheduler(
                    f"a batch holds {queued!r:.100}, which does not wait: it ran, was dropped, or is no unit"
                )
            if queued.request.model is not batch.model:
                raise BrokenScheduler(f"a batch of {batch.model.id} holds a unit of {queued.request.model.id}")
            keys.add(queued.unit.key)
            waiting.remove(queued)
            if not waiting:
                del self._waiting[queued.request]
            cost += queued.unit.cost
        self._count(batch.model, -len(batch.units), -cost)
        if len(keys) > 1:
            raise BrokenScheduler(f"a batch mixes the keys {keys!r:.200}")
        if batch.cost != cost:
            raise BrokenScheduler(f"a batch says that it costs {batch.cost}, and its units cost {cost}")
        left, (told, _) = self._units[batch.model], self._scheduler.waiting(batch.model)
        if told != left:
            raise BrokenScheduler(f"{left} units of {batch.model.id} wait, and waiting says {told}: others are lost")

    def _forget_all(self, late: Sequence[QueuedRequest]) -> list[tuple[QueuedRequest, int]]:
        return [(each, len(self._forget(each))) for each in late if each in self._waiting]

    def _forget(self, request: QueuedRequest) -> set[QueuedUnit]:
        dropped = self._waiting.pop(request, set())
        self._count(request.model, -len(dropped), -sum(map(COST, dropped)))
        return dropped

    def _count(self, model: QueuedModel, units: int, cost: int) -> None:
        self._units[model] += units
        self.queued_units += units
        self.queued_cost += cost
