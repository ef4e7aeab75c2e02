"""What waits for one device and what is on it, behind one lock."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import cast

from sie_core.batching.sharing.demand import Demand
from sie_core.batching.sharing.scheduler import PolicyError, Scheduler
from sie_core.engine.device.batch_run import Run
from sie_core.engine.device.health import DeviceHealth
from sie_core.engine.models.loaded import LoadedModel
from sie_core.engine.requests.errors import deadline_exceeded, unavailable
from sie_core.engine.requests.inflight import Flight, FlightUnit

log = logging.getLogger(__name__)

LEAST_WAIT_S = 0.001


class DeviceQueue:
    """The queues of all models, and parts of failed batches. Its methods may be called from any thread."""

    def __init__(
        self,
        scheduler: Scheduler[LoadedModel],
        health: DeviceHealth,
        lost: Callable[[LoadedModel], None],
        clock: Callable[[], float],
        ahead: int = 1,
    ) -> None:
        self._scheduler = scheduler  # only ever touched under the lock
        self._health = health
        self._lost = lost  # told of a model whose queue is lost, with all requests in it
        self._clock = clock
        self._ahead = ahead  # batches that may be on the device at once
        self._lock = threading.RLock()
        self._wake = threading.Condition(self._lock)
        self._retries: deque[Run] = deque()
        self._on_device: set[Run] = set()
        self._last_end = 0.0
        # Whether the worker waits, and nothing is queued or on the device.
        self._idle = False
        # What it is to call then, on its own thread.
        self._call: Callable[[], None] | None = None
        self._closed_because: str | None = None

    def close(self, why: str) -> None:
        """Take no more units and give out no more batches."""
        with self._lock:
            self._closed_because = self._closed_because or why
            self._wake.notify_all()

    def add_model(self, model: LoadedModel) -> None:
        """Serve a model's queue."""
        with self._lock:
            self._scheduler.add_model(model)

    def remove_model(self, model: LoadedModel) -> None:
        """Stop serving a model's queue; nothing may wait in it."""
        with self._lock:
            self._scheduler.remove_model(model)

    def admit(self, model: LoadedModel, demand: Demand) -> None:
        """Raise `QUEUE_FULL` for a request that finds no room, or whose deadline cannot be met."""
        with self._lock:
            now = self._clock()
            left_s = self._scheduler.admission.left_s
            ahead = sum(left_s(run.model, run.batch, self._since(run), now) for run in self._on_device)
            self._scheduler.admit(model, demand, now, ahead)

    def submit(self, model: LoadedModel, units: Sequence[FlightUnit]) -> None:
        """Queue units of a request that was admitted, or raise `QUEUE_UNAVAILABLE`."""
        with self._lock:
            if self._closed_because is not None:
                raise unavailable(self._closed_because)
            now = self._clock()  # under the lock: a policy is promised times that do not decrease
            for unit in units:
                unit.enqueued_at = now
            try:
                self._scheduler.submit(model, units)
            except PolicyError as error:
                self._policy_failed(model, error)
                raise unavailable(f"the queue of {model.id} was lost") from error
            self._wake.notify()

    def cancel(self, flight: Flight) -> None:
        """Remove what is queued of a settled request."""
        with self._lock:
            try:
                dropped = flight.model.policy.cancel(flight)
            except Exception as error:
                self._policy_failed(flight.model, error)
                return
        flight.model.metrics.dropped(flight.error, dropped)

    def retry(self, part: Run) -> None:
        """Have a part of a failed batch run before anything that waits."""
        part.lease = part.model.leases.acquire()
        with self._lock:
            self._retries.append(part)
            self._wake.notify()

    def queued(self) -> tuple[int, int]:
        """Return the units and the cost units that wait."""
        with self._lock:
            return self._scheduler.queued_units, self._scheduler.queued_cost

    def queued_by_model(self) -> dict[str, int]:
        """Return the units that wait, by the id of each model."""
        with self._lock:
            return self._scheduler.queued_by_model()

    def next_run(self) -> Run | None:
        """Wait for the next batch and put it on the device; None once the queue is closed."""
        while True:
            with self._lock:
                while self._closed_because is None and self._call is None:
                    run, wait_s = self.take()
                    if run is not None:
                        return run
                    self._idle = not self._on_device and not self._something_waits()
                    self._wake.wait(wait_s)
                    self._idle = False
                if self._closed_because is not None:
                    return None
                call, self._call = self._call, None
            assert call is not None
            self._health.preparing_since = self._clock()
            try:
                call()
            except BaseException:
                log.exception("a task of the device's thread failed beyond its own handling")
            self._health.preparing_since = call = None  # an idle thread must not keep the request alive

    def call_if_idle(self, call: Callable[[], None]) -> bool:
        """Have the worker's thread make a quick call that queues units, where it has nothing to do; else return False.

        It then runs them without being woken a second time. A queue that is closed meanwhile drops the call. Waits for
        nothing: a batch policy that hangs holds the lock, and must not hold up the event loop too.
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

    def take(self) -> tuple[Run | None, float | None]:
        """Put the next batch on the device; return it, or after how many seconds there may be one (None: unknown)."""
        with self._lock:
            if not self._something_waits():
                return None, None
            self._health.choosing_since = now = self._clock()
            try:
                run = self._choose(now)
                wait_s = None if run else self._longest_wait(now)
            except PolicyError as error:
                self._policy_failed(cast("LoadedModel", error.model), error)
                run, wait_s = None, LEAST_WAIT_S
            self._health.choosing_since = None
            if run is not None:
                run.started = run.at_work_since = now
                self._on_device.add(run)
                self._health.unfinished.add(run)
            return run, wait_s

    def preempting(self, run: Run) -> Run | None:
        """Put a batch of short requests on the device in the middle of a run of large ones; None where none waits."""
        with self._lock:
            if self._closed_because is not None or self._retries:
                return None
            now = self._clock()
            try:
                chosen = self._scheduler.next(now, device_busy=False, preempting=True)
            except PolicyError as error:
                self._policy_failed(cast("LoadedModel", error.model), error)
                return None
            if chosen is None:
                return None
            run.started = self._since(run)
            short = Run(*chosen, lease=chosen[0].leases.acquire(), started=now, within=run)
            short.at_work_since = now
            self._on_device.add(short)
            self._health.unfinished.add(short)
            return short

    def resumed(self, run: Run, short: Run) -> None:
        """Note that a run goes on after `short` preempted it: that time is not its own, whatever became of `short`."""
        with self._lock:
            run.preempted_until = self._clock()
            seconds = run.preempted_until - short.started
            run.started += seconds
            run.preempted_s += seconds
            if run.at_work_since is not None:
                run.at_work_since += seconds

    def device_done(self, run: Run) -> None:
        """Note that the device ended a run, and learn how long it took; a second call changes nothing."""
        with self._lock:
            if run not in self._on_device:
                return
            self._on_device.discard(run)
            oldest = min((unit.enqueued_at for unit in run.units), default=run.started)
            waited, before = run.started - oldest, self._last_end
            run.started, run.ended = self._since(run), self._clock()
            seconds = run.ended - run.started
            if run.within is None:
                self._last_end = run.ended
            else:
                before = max(before, run.within.preempted_until)
            try:
                since = max(before, oldest) + run.preempted_s
                self._scheduler.record(run.model, run.batch, seconds, run.ended - since)
            except PolicyError:
                log.exception("the batch policy of %s failed to learn from a batch", run.model.id)
            self._wake.notify()
        run.model.metrics.ran(run.batch, waited, seconds)

    def done(self, run: Run) -> None:
        """Note that a run's outputs are finished, or that it failed."""
        with self._lock:
            self._health.unfinished.discard(run)
            if run in self._on_device:  # else `device_done` has woken the worker
                self._on_device.discard(run)
                self._wake.notify()

    def _since(self, run: Run) -> float:
        # A run that was launched ahead begins when the one before it ends.
        return max(run.started, self._last_end)

    def _choose(self, now: float) -> Run | None:
        for model, flights, units in self._scheduler.expire(now):
            model.metrics.dropped(deadline_exceeded(), units)
            for flight in flights:
                cast("Flight", flight).fail(deadline_exceeded())
        if not self._may_launch():
            return None
        if self._retries:  # before anything that waits: their requests have waited longest
            return self._retries.popleft()
        chosen = self._scheduler.next(now, device_busy=bool(self._on_device))
        if chosen is None:
            return None
        self._health.policy_worked()
        return Run(*chosen, lease=chosen[0].leases.acquire())

    def _may_launch(self) -> bool:
        if not self._on_device:
            return True
        # A batch that lacked memory runs with none beside it.
        alone = any(run.after_freeing for run in (*self._on_device, *self._retries))
        return not alone and len(self._on_device) < self._ahead

    def _longest_wait(self, now: float) -> float | None:
        # With the device full `device_done` wakes the worker, with nothing queued `submit` does.
        ready_at = self._scheduler.ready_at(now) if self._may_launch() else None
        return None if ready_at is None else min(threading.TIMEOUT_MAX, max(LEAST_WAIT_S, ready_at - now))

    def _policy_failed(self, model: LoadedModel, error: Exception) -> None:
        log.error("the batch policy of %s failed; its queue is lost", model.id, exc_info=error)
        self._health.policy_failed()
        self._health.model_ran(model, failed=True)
        model.policy.lose(error.__cause__ or error)
        # What a policy holds after it raised is not known, so a new one takes its place.
        try:
            model.policy = model.new_policy()
        except Exception:
            log.exception("the batch policy of %s cannot be made again; the old one is used on", model.id)
        self._lost(model)
