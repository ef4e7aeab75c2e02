"""What becomes of a batch that failed: it is split until the culprit is alone, or its parts fit into memory."""

from __future__ import annotations

from collections.abc import Sequence

from sie_core.engine.device.batch_run import Run, flight_of, part_of
from sie_core.engine.requests.errors import OUT_OF_MEMORY


def after_failure(run: Run, error: BaseException, tried: int) -> Sequence[Run] | None:
    """List the parts to try of a run of `tried` units that raised: `[]` fails its one request, None frees memory first.

    Where requests of it are settled meanwhile, the rest is tried again whole: a settled one may have raised.
    """
    if len(run.units) < tried:
        return [Run(run.model, run.batch, after_freeing=run.after_freeing)]
    if not isinstance(error, OUT_OF_MEMORY):
        return _halves_by_request(run)
    return _halves_by_unit(run) if run.after_freeing else None


def after_freeing(run: Run, *, freed: bool) -> list[Run]:
    """List what to try of a run that was set aside: the whole where memory was freed for it, else its halves."""
    whole = [Run(run.model, run.batch, after_freeing=True)]
    return whole if freed else _halves_by_unit(run) or whole


def _halves_by_request(run: Run) -> list[Run]:
    flights = run.flights()
    first = set(flights[: len(flights) // 2])
    if not first:
        return []
    chosen = [flight_of(unit) in first for unit in run.units]
    halves = [[unit for unit, taken in zip(run.units, chosen, strict=True) if taken == half] for half in (True, False)]
    return [Run(run.model, part_of(run.batch, units)) for units in halves]


def _halves_by_unit(run: Run) -> list[Run]:
    # Units come cheapest first, so the halves are of units of like length.
    middle = len(run.units) // 2
    halves = (run.units[:middle], run.units[middle:]) if middle else ()
    return [Run(run.model, part_of(run.batch, units), after_freeing=True) for units in halves]
