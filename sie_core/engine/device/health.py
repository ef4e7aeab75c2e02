"""Whether a device makes progress, and which models fail one request after the other."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from sie_core.engine.device.batch_run import Run
from sie_core.engine.models.loaded import LoadedModel

# Failures of the scheduler, with no batch in between, before new requests are unwelcome.
SCHEDULER_FAILURES = 3


@dataclass(slots=True, eq=False)
class DeviceHealth:
    """A batch, the scheduler or a request's preparation may count as hung after `stall_s` seconds."""

    stall_s: float
    clock: Callable[[], float]
    # Why nothing runs any more.
    death: str | None = None
    # The following is read without the queue's lock, which a hanging scheduler holds.
    unfinished: set[Run] = field(default_factory=set)
    # When the worker asked the scheduler for the next batch; None while it does not ask.
    choosing_since: float | None = None
    # When the worker began to prepare a short request, which it does while nothing runs.
    preparing_since: float | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _scheduler_failures: int = 0
    _scheduler_failed_at: float = 0.0

    def problem(self) -> str | None:
        """Explain why only a restart helps: the device is lost, its thread is dead, or its current call hangs."""
        if self.death is not None:
            return self.death
        now = self.clock()
        for since, what in (
            (self.choosing_since, "the scheduler has been at work"),
            (self.preparing_since, "a request has been prepared"),
        ):
            if since is not None and now - since > self.stall_s:
                return f"{what} for {now - since:.0f} s, and nothing runs"
        hung = (run.problem(now, self.stall_s) for run in tuple(self.unfinished))
        return next(filter(None, hung), None)

    def scheduler_problem(self) -> str | None:
        """Report that the scheduler fails and nothing runs."""
        # A while after the last failure new requests are welcome, and try it again.
        if self._scheduler_failures < SCHEDULER_FAILURES or self.clock() - self._scheduler_failed_at > self.stall_s:
            return None
        return (
            f"the scheduler failed {self._scheduler_failures} times in a row and nothing ran; the server's log says why"
        )

    def model_ran(self, model: LoadedModel, *, failed: bool) -> None:
        """Count a request that failed alone in its batch; a successful batch resets the count."""
        with self._lock:  # several threads finish batches
            model.failures = model.failures + 1 if failed else 0

    def scheduler_failed(self) -> None:
        """Count a scheduler that raised or broke its contract."""
        self._scheduler_failures, self._scheduler_failed_at = self._scheduler_failures + 1, self.clock()

    def scheduler_worked(self) -> None:
        """End the scheduler's streak: it formed a batch."""
        self._scheduler_failures = 0
