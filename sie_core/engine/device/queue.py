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
from sie_core.engine.device.on_device import OnDevice
from sie_core.engine.models.loaded import LoadedModel
from sie_core.engine.requests.errors import deadline_exceeded, unavailable
from sie_core.engine.requests.inflight import Flight, FlightUnit

log = logging.getLogger(__name__)

Call = Callable[[], None]

LEAST_WAIT_S = 0.001


class DeviceQueue:
    """The queues of all models, and parts of failed batches. Its methods may be called from any thread."""

    def __init__(
        self,
        scheduler: Scheduler[LoadedModel],
        health: DeviceHealth,
        lost: Callable[[LoadedModel], None],
        clock: Callable[[], float],
        on_device: OnDevice,
    ) -> None:
        self._scheduler = scheduler  # only ever touched under the lock
        self._health = health
        self._lost = lost  # told of a model whose queue is lost, with all requests in it
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
        with self._lock:
            self._scheduler.add_model(model)

    def remove_model(self, model: LoadedModel) -> None:
        """Stop serving a model's queue; nothing may wait in it."""
        with self._lock:
            self._scheduler.remove_model(model)

    def admit(self, model: LoadedModel, demand: Demand, *, unless_promised: bool = False) -> None:
        """Raise `QUEUE_FULL` for a request that finds no room, or whose deadline cannot be met."""
        with self._lock:
            now = self._clock()
            ahead_s = self._on_device.left_s(self._scheduler.admission.left_s, now)
            if not (unless_promised and self._scheduler.admission.is_promised(demand, now)):
                self._scheduler.admit(model, demand, now, ahead_s)

    def begin_preparing(self, model: LoadedModel, demand: Demand) -> None:
        """Count a request before those that are judged from now on, until it is judged as prepared."""
        with self._lock:
            self._scheduler.admission.begin_preparing(model, demand, self._clock())

    def end_preparing(self, model: LoadedModel, demand: Demand) -> None:
        """Count a request no longer, if it is counted."""
        with self._lock:
            self._scheduler.admission.end_preparing(model, demand)

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
                self._policy_failed(error)
                raise unavailable(f"the queue of {model.id} was lost") from error
            self._wake.notify()

    def cancel(self, flight: Flight) -> None:
        """Remove what is queued of a settled request."""
        with self._lock:
            try:
                dropped = self._scheduler.cancel(flight.model, flight)
            except PolicyError as error:
                self._policy_failed(error)
                return
            if dropped and flight.error is not None and flight.error.code == "DEADLINE_EXCEEDED":
                self._scheduler.admission.ended(flight.model, 1, 0)
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

    def next(self) -> Run | Call | None:
        """Wait for the next batch, which is then on the device, or for a call of `call_if_idle`; None once closed."""
        with self._lock:
            while self._closed_because is None:
                if self._call is not None:
                    call, self._call = self._call, None
                    return call
                run, wait_s = self.take()
                if run is not None:
                    return run
                self._idle = not self._on_device and not self._something_waits()
                self._wake.wait(wait_s)
                self._idle = False
            return None

    def call_if_idle(self, call: Call) -> bool:
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
                self._policy_failed(error)
                run, wait_s = None, LEAST_WAIT_S
            self._health.choosing_since = None
            return run and self._on_device.begin(run, now), wait_s

    def preempting(self, run: Run) -> Run | None:
        """Put a batch of short requests on the device in the middle of a run of large ones; None where none waits."""
        with self._lock:
            if self._closed_because is not None or self._retries:
                return None
            now = self._clock()
            try:
                short = self._form(now, within=run)
            except PolicyError as error:
                self._policy_failed(error)
                return None
            return short and self._on_device.begin(short, now)

    def resumed(self, run: Run, short: Run) -> None:
        """Note that a run goes on after `short` preempted it, whatever became of `short`."""
        with self._lock:
            self._on_device.resume(run, short, self._clock())

    def device_done(self, run: Run) -> None:
        """Note that the device ended a run, and learn how long it took; a second call changes nothing."""
        with self._lock:
            if (times := self._on_device.end(run, self._clock())) is None:
                return
            (waited, held_up), seconds = times, run.ended - run.started
            try:
                self._scheduler.record(run.model, run.batch, seconds, held_up, run.ended)
            except PolicyError:
                log.exception("the batch policy of %s failed to learn from a batch", run.model.id)
            self._wake.notify()
        run.model.metrics.ran(run.batch, waited, seconds)

    def done(self, run: Run) -> None:
        """Note that a run's outputs are finished, or that it failed."""
        with self._lock:
            self._on_device.unfinished.discard(run)
            if self._on_device.remove(run, self._clock()):  # else `device_done` has woken the worker
                self._wake.notify()

    def _choose(self, now: float) -> Run | None:
        for model, flights, units in self._scheduler.expire(now):
            model.metrics.dropped(deadline_exceeded(), units)
            for flight in flights:
                cast("Flight", flight).fail(deadline_exceeded())
        if not self._on_device.may_begin(self._retries):
            long = self._on_device.held_up_by(self._retries)
            return long and self._form(now, within=long)
        if self._retries:  # before anything that waits: their requests have waited longest
            return self._retries.popleft()
        return self._form(now)

    def _form(self, now: float, within: Run | None = None) -> Run | None:
        busy = within is None and len(self._on_device) > 0
        others_than = self._on_device.only_others_than(within)
        if within and others_than and within.was_preempted_for_long:
            return None
        chosen = self._scheduler.next(now, busy, preempting=within is not None, others_than=others_than)
        if chosen is None:
            return None
        self._health.policy_worked()
        holds_up_others = within is None and self._scheduler.holds_up_others(*chosen, now)
        return Run(*chosen, chosen[0].leases.acquire(), within=within, holds_up_others=holds_up_others)

    def _longest_wait(self, now: float) -> float | None:
        # With the device full `device_done` wakes the worker, with nothing queued `submit` does.
        ready_at = self._scheduler.ready_at(now) if self._on_device.may_begin(self._retries) else None
        return None if ready_at is None else min(threading.TIMEOUT_MAX, max(LEAST_WAIT_S, ready_at - now))

    def _policy_failed(self, error: PolicyError) -> None:
        model = cast("LoadedModel", error.model)
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
