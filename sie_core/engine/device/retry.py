"""What becomes of a batch that failed. Pure: it runs nothing, and its caller tells the requests.

A batch that raised is split by request until the culprit is alone, and only the culprit's request fails. One that
lacked memory waits once until some was freed; then it is split by unit until its parts fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sie_core.engine.device.batch_run import Run, flight_of, part_of
from sie_core.engine.requests.errors import OUT_OF_MEMORY


@dataclass(frozen=True, slots=True)
class TryAgain:
    """These parts run again, before anything that waits."""

    parts: Sequence[Run]


@dataclass(frozen=True, slots=True)
class SetAside:
    """The whole run waits until somebody tried to free memory, and goes on by `after_freeing`."""


@dataclass(frozen=True, slots=True)
class FailRequest:
    """There is nothing smaller to try: the run's one request fails."""


def after_failure(run: Run, error: BaseException) -> TryAgain | SetAside | FailRequest:
    """Decide how a run that raised `error` goes on."""
    if not isinstance(error, OUT_OF_MEMORY):
        parts = _halves_by_request(run)
    elif run.after_freeing:
        parts = _halves_by_unit(run)
    else:
        return SetAside()
    return TryAgain(parts) if parts else FailRequest()


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
