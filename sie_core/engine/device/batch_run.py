"""A batch on its way through the device and its finishing, and the retries of a failed one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import filterfalse
from operator import attrgetter
from typing import cast

from sie_core.concurrency.leases import Lease
from sie_core.contracts import Batch
from sie_core.engine.models.loaded import LoadedModel
from sie_core.engine.requests.errors import OUT_OF_MEMORY
from sie_core.engine.requests.inflight import Flight, FlightUnit

# A batch that takes longer than this many times its prediction counts as hung.
STALL_FACTOR = 10.0
SETTLED: Callable[[FlightUnit], bool] = attrgetter("request.settled")
_TRACE: Callable[[FlightUnit], object] = attrgetter("request.trace")


@dataclass(slots=True, eq=False)
class Run:
    """One attempt to run a batch, with a lease on its model until it ends."""

    model: LoadedModel
    batch: Batch
    lease: Lease | None = None
    # The scheduler's batch; None for a part of a failed one.
    given: Batch | None = None
    # Its units ran out of memory before, and the engine tried to free some.
    after_freeing: bool = False
    started: float = 0.0
    ended: float = 0.0
    # The run that it preempted.
    within: Run | None = None
    # When its current stage began work on it; None while it waits for one.
    at_work_since: float | None = None
    # The units, cheapest first.
    units: tuple[FlightUnit, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.units = cast("tuple[FlightUnit, ...]", self.batch.units)

    def flights(self) -> list[Flight]:
        """List the distinct requests with units in the batch."""
        return list(dict.fromkeys(unit.request for unit in self.units))

    def arrived(self) -> float:
        """Return when the first of its requests arrived."""
        return min(flight.arrived for flight in self.flights())

    def wasted_cost(self) -> int:
        """Return the cost units of requests that are settled: nobody waits for their outputs."""
        return sum(unit.unit.cost for unit in filter(SETTLED, self.units))

    def leave_out_settled(self) -> bool:
        """Leave out the units of settled requests, and count them; return whether any is left."""
        alive = tuple(filterfalse(SETTLED, self.units))
        if len(alive) < len(self.units):
            for unit in set(self.units).difference(alive):
                self.model.metrics.dropped(unit.request.error, 1)
            self.batch, self.units = part_of(self.batch, alive), alive
        return bool(alive)

    def problem(self, now: float, least_s: float) -> str | None:
        """Report that a stage has been at work on it for more than `least_s`, and for far longer than predicted."""
        limit = max(least_s, STALL_FACTOR * (self.batch.predicted_s or 0.0))
        if self.at_work_since is None or (took := now - self.at_work_since) <= limit:
            return None
        return f"a batch of {self.model.id} has been at work for {took:.0f} s, above {limit:.0f} s"


def part_of(batch: Batch, units: Sequence[FlightUnit]) -> Batch:
    """Make a batch of some of a batch's units, in their order, with its share of the predicted time."""
    cost = sum(unit.unit.cost for unit in units)
    predicted = None if batch.predicted_s is None else batch.predicted_s * cost / max(1, batch.cost)
    return replace(batch, units=tuple(units), cost=cost, predicted_s=predicted)


def after_failure(run: Run, error: BaseException, tried: int) -> Sequence[Run] | None:
    """List the parts to retry of a run of `tried` units that raised: `[]` fails its one request, None frees memory
    first.

    If some of its requests were settled meanwhile, the rest is retried whole: a settled one may have raised.
    """
    if len(run.units) < tried:
        return [Run(run.model, run.batch, after_freeing=run.after_freeing)]
    if not isinstance(error, OUT_OF_MEMORY):
        return _halves_by_request(run)
    if run.within is not None:  # that one has its own memory, and is over soon
        return [Run(run.model, run.batch)]
    return _halves_by_unit(run) if run.after_freeing else None


def after_freeing(run: Run, *, freed: bool) -> list[Run]:
    """List what to retry of a run that was set aside: the whole run if memory was freed for it, else its halves."""
    whole = [Run(run.model, run.batch, after_freeing=True)]
    return whole if freed else _halves_by_unit(run) or whole


def _halves_by_request(run: Run) -> list[Run]:
    flights = run.flights()
    first = set(flights[: len(flights) // 2])
    if not first:
        return []
    chosen = [unit.request in first for unit in run.units]
    halves = [[unit for unit, taken in zip(run.units, chosen, strict=True) if taken == half] for half in (True, False)]
    return [Run(run.model, part_of(run.batch, units)) for units in halves]


def _halves_by_unit(run: Run) -> list[Run]:
    # Units come cheapest first, so the halves are of units of like length.
    middle = len(run.units) // 2
    halves = (run.units[:middle], run.units[middle:]) if middle else ()
    return [Run(run.model, part_of(run.batch, units), after_freeing=True) for units in halves]


def trace_batch(run: Run, now: float, error: BaseException | None = None, parts: int | None = None) -> None:
    """Record a batch that ran, or failed, with links to its requests; `parts` of one that failed are tried again."""
    if not any(map(_TRACE, run.units)):  # few batches have one, and this is asked of each
        return
    flights = run.flights()
    traces = [flight.trace for flight in flights if flight.trace is not None]
    link = traces[0].apart(
        "batch",
        run.started,
        run.ended or now,
        traces,
        None if error is None else type(error).__name__,
        model=run.model.id,
        computed=run.model.facts.computed,
        cost=run.batch.cost,
        units=len(run.units),
        requests=len(flights),
        predicted_s=run.batch.predicted_s,
        retried_in=parts,
    )
    for flight in flights:
        flight.batches.append(link)
    if error is not None:
        for trace in traces:
            trace.event("batch failed", now, error=type(error).__name__, retried_in=parts)
