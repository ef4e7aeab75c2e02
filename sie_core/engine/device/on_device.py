"""The runs that a device has been given, and which of its time is whose. Given the time; its caller holds the lock."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from sie_core.contracts import Batch
from sie_core.engine.device.batch_run import Run
from sie_core.engine.models.loaded import LoadedModel


@dataclass(slots=True, eq=False)
class OnDevice:
    """Runs that follow one another on a device, and short ones that preempt a long one. Times are seconds."""

    # How many may be there at once.
    most: int
    # Those that are not finished: on the device, or their outputs being made. Read without the lock.
    unfinished: set[Run]
    # Whether the device is given short ones beside a long one, on a stream of higher priority.
    beside: bool = False
    _runs: set[Run] = field(default_factory=set)
    # When the last one ended that preempted no other.
    _last_end: float = 0.0

    def __len__(self) -> int:
        return len(self._runs)

    def may_begin(self, retries: Iterable[Run]) -> bool:
        """Whether the device takes another run; `retries` wait for it."""
        if not self._runs:
            return True
        # Behind a run that holds up short requests nothing is launched ahead: they would wait for that too. Nor is it
        # beside one on another stream, whose model must not run twice at once.
        if len(self._runs) >= self.most or any(run.preemptible or run.within for run in self._runs):
            return False
        # A batch that lacked memory runs with none beside it.
        return not any(run.after_freeing for run in (*self._runs, *retries))

    def held_up_by(self, retries: Iterable[Run]) -> Run | None:
        """Return the run that short requests may be launched beside; `retries` wait for it."""
        if not self.beside or len(self._runs) != 1:
            return None
        (run,) = self._runs
        # A batch that lacked memory runs with none beside it.
        return run if run.preemptible and not run.after_freeing and not any(retries) else None

    def only_others_than(self, run: Run | None) -> LoadedModel | None:
        """Return a run's model where others alone may preempt it: beside itself a model would run twice at once."""
        return None if run is None or (run.batch.large and not self.beside) else run.model

    def left_s(self, left_s: Callable[[LoadedModel, Batch, float, float], float], now: float) -> float:
        """Add up what is left of the runs, as `QueueAdmission.left_s` tells."""
        return sum(left_s(run.model, run.batch, self._since(run), now) for run in self._runs)

    def begin(self, run: Run, now: float) -> Run:
        """Put a run on the device; where it is within another one, that one stands still until `resume`."""
        if run.within is not None:
            run.within.started = self._since(run.within)
        run.started = run.at_work_since = now
        self._runs.add(run)
        self.unfinished.add(run)
        return run

    def resume(self, run: Run, short: Run, now: float) -> None:
        """Go on with a run that `short` preempted: that time is not its own."""
        seconds, run.preempted_until = now - short.started, now
        run.started += seconds
        run.preempted_s += seconds
        if run.at_work_since is not None:
            run.at_work_since += seconds

    def end(self, run: Run, now: float) -> tuple[float, float] | None:
        """Take a run off the device and write down its times; None where it is not there.

        Returns:
            For how long its oldest unit had waited when it began, and for how long those behind it waited for it.
        """
        if run not in self._runs:
            return None
        oldest = min((unit.enqueued_at for unit in run.units), default=run.started)
        waited, before = run.started - oldest, self._last_end
        run.started, run.ended = self._since(run), now
        if run.within is None:
            self._last_end = now
        else:
            before = max(before, run.within.preempted_until)
        self.remove(run, now)
        return waited, now - (max(before, oldest) + run.preempted_s)

    def remove(self, run: Run, now: float) -> bool:
        """Take a run off the device; False where it is not there."""
        there = run in self._runs
        self._runs.discard(run)
        if self.beside and there and run.within in self._runs:
            self.resume(run.within, run, now)
        return there

    def _since(self, run: Run) -> float:
        # A run that was launched ahead begins when the one before it ends.
        return max(run.started, self._last_end) if run.within is None else run.started
