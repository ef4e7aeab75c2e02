"""Schedulers, each broken in one way."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import replace
from itertools import count

from sie_core.batching import FairScheduler
from sie_core.contracts import Batch, InferenceError
from tests.kit.faults.seeding import fault

RUNS = "every_unit_runs_once_and_within_the_limits"


@fault("scheduler", RUNS)
class IgnoresCost(FairScheduler):
    def add_model(self, model, limits):
        super().add_model(model, replace(limits, max_cost=10**9))


@fault("scheduler", RUNS)
class IgnoresRequests(FairScheduler):
    def add_model(self, model, limits):
        super().add_model(model, replace(limits, max_requests=10**9, max_cost=64))


@fault("scheduler", RUNS)
class DearestFirst(FairScheduler):
    def next(self, now, *, ahead=False, within=None):
        batch = super().next(now, ahead=ahead, within=within)
        return batch and replace(batch, units=batch.units[::-1])


@fault("scheduler", "cancelled_units_never_run")
class RunsTheCancelled(FairScheduler):
    def cancel(self, request):
        return 0


@fault("scheduler", "late_requests_never_run")
class ForgetsDeadlines(FairScheduler):
    def late(self, now):
        return []


@fault("scheduler", "an_idle_device_never_waits")
class WaitsWhileIdle(FairScheduler):
    def next(self, now, *, ahead=False, within=None):
        return super().next(now, ahead=True)


@fault("scheduler", "nothing_starves")
class LastComeFirstServed:
    """Serves the newest unit first, so an old one may wait for ever."""

    version = 1

    def __init__(self, limits):
        self.units = []

    def add_model(self, model, limits):
        pass

    def add(self, request, units, now):
        self.units += units

    def next(self, now, *, ahead=False, within=None):
        unit = self.units.pop()
        return Batch(unit.request.model, (unit,), unit.unit.cost)

    def ran(self, batch, seconds, now):
        pass

    def waiting(self, model):
        return sum(each.request.model is model for each in self.units), 0


@fault("scheduler", "nothing_starves")
class SharesItsQueue(FairScheduler):
    """Schedulers of one factory that are one queue, as a class attribute makes it."""

    made: list[FairScheduler] = []  # noqa: RUF012 - the fault

    def __new__(cls, limits):
        cls.made = cls.made or [super().__new__(cls)]
        return cls.made[0]

    def __init__(self, limits):
        if not hasattr(self, "_models"):
            super().__init__(limits)

    def add_model(self, model, limits):
        if model not in self._models:
            super().add_model(model, limits)


@fault("scheduler", RUNS)
class MultipliesUnits(FairScheduler):
    """Counts what is not there, so that a loop over its queue never ends."""

    def waiting(self, model):
        units, cost = super().waiting(model)
        return (10**9 - units if units else 0), cost


@fault("scheduler", RUNS, hangs=True)
class Hangs(FairScheduler):
    def next(self, now, *, ahead=False, within=None):
        threading.Event().wait()


class Queue:
    """A sound scheduler in few lines: requests in their order, one unit a batch; faults are made of it."""

    version = 1

    def __init__(self, limits):
        self.most, self.units, self.admitted = limits.max_cost, deque(), set()

    def add_model(self, model, limits):
        pass

    def remove_model(self, model):
        pass

    def add(self, request, units, now):
        cost = sum(each.unit.cost for each in (*self.units, *units))
        if cost > self.most and self.units and request not in self.admitted:
            raise InferenceError("QUEUE_FULL", "the queue is full")
        self.admitted.add(request)
        self.units += units

    def next(self, now, *, ahead=False, within=None):
        if not self.units or within is not None:
            return None
        unit = self.units.popleft()
        return Batch(unit.request.model, (unit,), unit.unit.cost)

    def late(self, now):
        late = {each.request for each in self.units if (each.request.deadline or now) < now}
        self.units = deque(each for each in self.units if each.request not in late)
        return list(late)

    def ran(self, batch, seconds, now):
        pass

    def cancel(self, request):
        before = len(self.units)
        self.units = deque(each for each in self.units if each.request is not request)
        return before - len(self.units)

    def waiting(self, model):
        costs = [each.unit.cost for each in self.units if each.request.model is model]
        return len(costs), sum(costs)


@fault("scheduler", "a_full_queue_refuses_by_type")
class RefusesNobody(Queue):
    def add(self, request, units, now):
        self.units += units


@fault("scheduler", "a_full_queue_refuses_by_type")
class RefusesByAnotherType(Queue):
    def add(self, request, units, now):
        try:
            super().add(request, units, now)
        except InferenceError:
            raise OverflowError("full") from None


@fault("scheduler", "a_full_queue_refuses_by_type")
class RefusesForEver(Queue):
    full = False

    def add(self, request, units, now):
        if self.full:
            raise InferenceError("QUEUE_FULL", "the queue is full")
        try:
            super().add(request, units, now)
        except InferenceError:
            self.full = True
            raise


@fault("scheduler", "a_full_queue_refuses_by_type")
class KeepsWhatItRefuses(Queue):
    def add(self, request, units, now):
        try:
            super().add(request, units, now)
        except InferenceError:
            self.units += units[:1]
            raise


@fault("scheduler", "an_admitted_request_is_never_refused")
class RefusesTheAdmitted(Queue):
    def add(self, request, units, now):
        self.admitted = set()
        super().add(request, units, now)


@fault("scheduler", "an_admitted_request_is_never_refused")
class ForgetsFirstUnits(Queue):
    def add(self, request, units, now):
        self.cancel(request)
        super().add(request, units, now)


@fault("scheduler", "a_failed_or_split_batch_is_noted")
class CountsOnSuccess(Queue):
    def ran(self, batch, seconds, now):
        self.speed = batch.cost / seconds


@fault("scheduler", "a_failed_or_split_batch_is_noted")
class KnowsItsBatchesAlone(Queue):
    def __init__(self, limits):
        super().__init__(limits)
        self.made = []

    def next(self, now, *, ahead=False, within=None):
        batch = super().next(now, ahead=ahead, within=within)
        if batch is not None:
            self.made.append(batch)
        return batch

    def ran(self, batch, seconds, now):
        self.made.remove(batch)


@fault("scheduler", "cancelled_units_never_run")
class CancelsTheKnownAlone(Queue):
    def cancel(self, request):
        dropped = super().cancel(request)
        if not dropped:
            raise KeyError(request)
        return dropped


@fault("scheduler", "models_come_and_go")
class ForgetsNoModel(FairScheduler):
    def remove_model(self, model):
        pass

    def add_model(self, model, limits):
        if model in self._models:
            raise RuntimeError("it serves already")
        super().add_model(model, limits)


@fault("scheduler", "models_come_and_go")
class HasOneModel(Queue):
    def remove_model(self, model):
        self.units.clear()


@fault("scheduler", "it_is_asked_ahead_and_within")
class KnowsNoAhead(Queue):
    def next(self, now):
        return super().next(now)


@fault("scheduler", "it_is_asked_ahead_and_within")
class InterruptsByAnything(FairScheduler):
    def next(self, now, *, ahead=False, within=None):
        return super().next(now)


@fault("scheduler", RUNS)
class LosesEverySeventh(Queue):
    def __init__(self, limits):
        super().__init__(limits)
        self.turns = count(1)

    def next(self, now, *, ahead=False, within=None):
        if not next(self.turns) % 7:
            super().next(now)
        return super().next(now)


@fault("scheduler", RUNS)
class MiscountsItsBatches(Queue):
    def next(self, now, *, ahead=False, within=None):
        batch = super().next(now)
        return batch and replace(batch, cost=batch.cost + 1)


@fault("scheduler", "late_requests_never_run")
class NamesAndKeepsTheLate(Queue):
    def late(self, now):
        return list({each.request for each in self.units if (each.request.deadline or now) < now})


@fault("scheduler", "late_requests_never_run")
class DropsWithoutDeadline(Queue):
    def late(self, now):
        late = {each.request for each in self.units if (each.request.deadline or 0) < now}
        self.units.clear()
        return list(late)


@fault("scheduler", None)
class IsUnfair(Queue):
    """Serves requests in their order, so a client with many has more: unfair, and in no contract."""
