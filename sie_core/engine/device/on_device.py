"""The runs that a device has been given, and their accounting of device time.

The clock is passed in; the caller holds the lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final

from sie_core.engine.device.batch_run import Run
from sie_core.engine.requests.inflight import FlightUnit

_ENQUEUED_AT: Final[Callable[[FlightUnit], float]] = attrgetter("enqueued_at")


@dataclass(slots=True, eq=False)
class OnDevice:
    """Runs that follow one another on a device, and shorter ones that preempt one. Times are seconds."""

    # Upper bound on the runs on the device.
    most: int
    # Unfinished runs: on the device, or with their outputs being made. Read without the lock.
    unfinished: set[Run]
    _runs: set[Run] = field(default_factory=set)
    # End of the last run that preempted no other.
    _last_end: float = 0.0

    def __len__(self) -> int:
        return len(self._runs)

    def may_begin(self, retries: Iterable[Run]) -> bool:
        """Whether the device takes another run; `retries` wait for it."""
        if not self._runs:
            return True
        # A batch that ran out of memory is retried alone.
        return len(self._runs) < self.most and not any(run.after_freeing for run in (*self._runs, *retries))

    def left_s(self, now: float) -> float:
        """Predict the remaining seconds of its runs; a run without a prediction counts as zero."""
        left_s = 0.0
        for run in self._runs:
            left_s += max(0.0, (run.batch.predicted_s or 0.0) - (now - self._since(run)))
        return left_s

    def begin(self, run: Run, now: float) -> Run:
        """Put a run on the device; if it is within another one, that one pauses until `resume`."""
        if run.within is not None:
            run.within.started = self._since(run.within)
        run.started = run.at_work_since = now
        self._runs.add(run)
        self.unfinished.add(run)
        return run

    def resume(self, run: Run, short: Run, now: float) -> None:
        """Go on with a run that `short` preempted, without counting that time as its own."""
        seconds = now - short.started
        run.started += seconds
        if run.at_work_since is not None:
            run.at_work_since += seconds

    def end(self, run: Run, now: float) -> float | None:
        """Take a run off the device and record its times.

        Returns:
            The queue wait of its oldest unit in seconds; None if the run is not on the device.
        """
        if run not in self._runs:
            return None
        oldest = min(map(_ENQUEUED_AT, run.units), default=run.started)
        waited = run.started - oldest
        run.started, run.ended = self._since(run), now
        if run.within is None:
            self._last_end = now
        self._runs.remove(run)
        return waited

    def remove(self, run: Run) -> bool:
        """Take a run off the device; False if it is not on it."""
        there = run in self._runs
        self._runs.discard(run)
        return there

    def _since(self, run: Run) -> float:
        # A run that was launched ahead begins when the one before it ends.
        return max(run.started, self._last_end) if run.within is None else run.started
