"""What waits for one device and what is on it, behind one lock."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import cast

from sie_core.batching.checked import BrokenScheduler, CheckedScheduler
from sie_core.engine.device.batch_run import SETTLED, Run, trace_batch
from sie_core.engine.device.health import DeviceHealth
from sie_core.engine.device.on_device import OnDevice
from sie_core.engine.models.loaded import LoadedModel
from sie_core.engine.requests.errors import deadline_exceeded, unavailable
from sie_core.engine.requests.inflight import Flight, FlightUnit

log = logging.getLogger(__name__)

Call = Callable[[], None]

LEAST_WAIT_S = 0.001
"""Seconds that the device's thread sleeps at least while work is kept back."""


class DeviceQueue:
    """The scheduler of a device, and parts of failed batches. Its methods may be called from any thread.

    Args:
        scheduler: Only ever touched under the lock.
        health: Of the device.
        lost: Called where all that waited is lost.
        clock: Monotonic seconds.
        on_device: The runs that the device has been given.
    """

    def __init__(
        self,
        scheduler: CheckedScheduler,
        health: DeviceHealth,
        lost: Callable[[], None],
        clock: Callable[[], float],
        on_device: OnDevice,
    ) -> None:
        self._scheduler = scheduler
        self._health = health
        self._lost = lost
        self._clock = clock
        self._lock = threading.RLock()
        self._wake = threading.Condition(self._lock)
        self._retries: deque[Run] = deque()
        self._on_device = on_device
        # Whether the worker waits, and nothing is queued or on the device.
        self._idle = False
        # What it is to call then, on its own thread.
        self._call: Call | None = None
        self._closed_because: str | None = None

    def close(self, why: str) -> None:
        """Take no more units and give out no more batches."""
        with self._lock:
            self._closed_because = self._closed_because or why
            self._wake.notify_all()

    def add_model(self, model: LoadedModel) -> None:
        """Serve a model's queue."""
        with self._lock, self._guarded():
            self._scheduler.add_model(model, model.limits)

    def remove_model(self, model: LoadedModel) -> None:
        """Stop serving a model's queue; nothing may wait in it."""
        with self._lock, self._guarded():
            self._scheduler.remove_model(model)

    def submit(self, flight: Flight, units: Sequence[FlightUnit]) -> None:
        """Queue units of a request.

        Raises:
            InferenceError: `QUEUE_FULL`: they are its first ones, and it finds no room or would be late.
                `QUEUE_UNAVAILABLE`: nothing is queued any more.
        """
        with self._lock:
            if self._closed_because is not None:
                raise unavailable(self._closed_because)
            now = self._clock()  # under the lock: a scheduler is promised times that do not decrease
            for unit in units:
                unit.enqueued_at = now
            try:
                self._scheduler.add(flight, units, now)
            except BrokenScheduler as error:
                self._failed(error)
                raise unavailable("the queue was lost") from error
            flight.admitted = True
            self._wake.notify()

    def cancel(self, flight: Flight) -> None:
        """Remove what is queued of a settled request, and abandon the runs whose requests all are."""
        dropped = 0
        with self._lock, self._guarded():
            unfinished = tuple(self._on_device.unfinished)  # runs end without the lock
            runs = [run for run in unfinished if any(unit.request is flight for unit in run.units)]
            dropped = self._scheduler.cancel(flight)
        flight.model.metrics.dropped(flight.error, dropped)
        for run in runs:
            if all(unit.request.settled for unit in run.units):
                try:
                    run.model.adapter.abandon([unit.made for unit in run.units])
                except Exception:  # the device's thread may be the caller
                    log.exception("%s could not abandon a batch, which runs on", run.model.id)

    def retry(self, part: Run) -> None:
        """Have a part of a failed batch run before anything that waits."""
        part.lease = part.model.leases.acquire()
        with self._lock:
            self._retries.append(part)
            self._wake.notify()

    # Without the lock, which a scheduler that hangs holds: a status must still say so.

    def problem(self) -> str | None:
        """Explain why only a restart makes the scheduler serve that was chosen."""
        return self._scheduler.problem

    def queued(self) -> tuple[int, int]:
        """Return the units and the cost units that wait."""
        return self._scheduler.queued_units, self._scheduler.queued_cost

    def queued_by_model(self) -> dict[str, int]:
        """Return the units that wait, by the id of each model; two configs of a model count together."""
        return self._scheduler.queued_by_model()

    def next(self) -> Run | Call | None:
        """Wait for the next batch, which is then on the device, or for a call of `call_if_idle`; None once closed."""
        with self._lock:
            while self._closed_because is None:
                if self._call is not None:
                    call, self._call = self._call, None
                    return call
                run = self.take()
                if run is not None:
                    return run
                waits = self._something_waits()
                self._idle = not self._on_device and not waits
                # What is kept back behind a run goes once that should have ended: nobody may have noticed its end yet.
                kept_back = waits and self._on_device.may_begin(self._retries)
                self._wake.wait(max(LEAST_WAIT_S, self._on_device.left_s(self._clock())) if kept_back else None)
                self._idle = False
            return None

    def call_if_idle(self, call: Call) -> bool:
        """Have the worker's thread make a quick call that queues units, where it has nothing to do; else return False.

        It then runs them without being woken a second time. A queue that is closed meanwhile drops the call. Waits for
        nothing: a scheduler that hangs holds the lock, and must not hold up the event loop too.
        """
        if not self._lock.acquire(blocking=False):
            return False
        try:
            if not self._idle or self._call is not None or self._closed_because is not None or self._something_waits():
                return False
            self._call = call
            self._wake.notify()
            return True
        finally:
            self._lock.release()

    def _something_waits(self) -> bool:
        return bool(self._retries) or self._scheduler.queued_units > 0

    def take(self) -> Run | None:
        """Put the next batch on the device and return it; None where there is none for it now."""
        with self._lock:
            if not self._something_waits():
                return None
            self._health.choosing_since = now = self._clock()
            run = None
            try:
                run = self._choose(now)
            except BrokenScheduler as error:
                self._failed(error)
            self._health.choosing_since = None
            return run and self._on_device.begin(run, now)

    def preempting(self, run: Run) -> Run | None:
        """Put a batch of shorter requests on the device in the middle of a run; None where none waits."""
        with self._lock:
            # A part of a failed batch, which no scheduler knows, is not preempted.
            if self._closed_because is not None or self._retries or run.given is None:
                return None
            if not self._scheduler.queued_units:
                return None
            now, short = self._clock(), None
            with self._guarded():
                short = self._form(now, within=run)
            return short and self._on_device.begin(short, now)

    def resumed(self, run: Run, short: Run) -> None:
        """Note that a run goes on after `short` preempted it, whatever became of `short`."""
        with self._lock:
            self._on_device.resume(run, short, self._clock())

    def device_done(self, run: Run) -> None:
        """Note that the device ended a run, and learn how long it took; a second call changes nothing."""
        with self._lock:
            now = self._clock()
            if (waited := self._on_device.end(run, now)) is None:
                return
            seconds = run.ended - run.started
            self._ran(run, seconds, now)
        metrics = run.model.metrics
        metrics.ran(run.batch, waited, seconds)
        if any(map(SETTLED, run.units)):
            metrics.wasted.inc(run.wasted_cost())
        if metrics.first_batch is not None:
            metrics.first_batch.set(run.ended - run.arrived())
            metrics.first_batch = None
        trace_batch(run, now)

    def done(self, run: Run) -> None:
        """Note that a run's outputs are finished, or that it failed."""
        with self._lock:
            self._on_device.unfinished.discard(run)
            if self._on_device.remove(run):  # it failed; else `device_done` has woken the worker
                self._ran(run, None, self._clock())

    def _ran(self, run: Run, seconds: float | None, now: float) -> None:
        try:
            if run.given not in (None, run.batch):  # units that nobody waits for any more were left out
                self._scheduler.ran(run.given, None, now)
            self._scheduler.ran(run.batch, seconds, now)
        except BrokenScheduler:
            log.exception("the scheduler failed to learn from a batch")
        self._wake.notify()

    def _choose(self, now: float) -> Run | None:
        for request, units in self._scheduler.late(now):
            flight = cast("Flight", request)
            flight.fail(deadline_exceeded())
            flight.model.metrics.dropped(deadline_exceeded(), units)
        if not self._on_device.may_begin(self._retries):
            return None
        if self._retries:  # before anything that waits: their requests have waited longest
            return self._retries.popleft()
        return self._form(now)

    def _form(self, now: float, within: Run | None = None) -> Run | None:
        ahead = within is None and self._on_device.left_s(now) > 0
        batch = self._scheduler.next(now, ahead=ahead, within=None if within is None else within.given)
        if batch is None:
            return None
        self._health.scheduler_worked()
        model = cast("LoadedModel", batch.model)
        return Run(model, batch, model.leases.acquire(), batch, within=within)

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        # What a scheduler holds after it failed is not known: all that waited is lost, and a new one takes its place.
        try:
            yield
        except BrokenScheduler as error:
            self._failed(error)

    def _failed(self, error: BrokenScheduler) -> None:
        log.error("the scheduler failed; all that waited is lost", exc_info=error)
        self._health.scheduler_failed()
        self._scheduler.lose(error)
        self._lost()
