"""The one thread of a device: takes the next batch, runs it, and outlives whatever a batch does.

A batch that fails is split until the culprit is alone, and only the culprit's request fails. One that ran out of memory
is set aside first, until somebody has made room. It must not know HTTP, the event loop, who makes room, or how outputs
are finished.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, cast

from sie_core.contracts import Device, DeviceLost, InferenceError
from sie_core.engine.device.batch_run import Run, halves_by_request, halves_by_unit
from sie_core.engine.device.health import Failing, Row
from sie_core.engine.device.scheduler import PolicyError, Scheduler
from sie_core.engine.models.loaded import LoadedModel
from sie_core.engine.requests.errors import OUT_OF_MEMORY, deadline_exceeded, out_of_memory, request_error, unavailable
from sie_core.engine.requests.inflight import Flight, FlightUnit

log = logging.getLogger(__name__)

LAUNCHED_AHEAD = 2
"""Batches an asynchronous device is given at once: one runs, the next is there when it ends."""
LEAST_WAIT_S = 0.001
POLICY_FAILURES = 3
"""How many times batch policies fail, with no batch in between, before new requests are unwelcome."""

clock = time.monotonic


class DeviceThread:
    """Runs the batches of every model on one device. Its methods may be called from any thread.

    Args:
        device: The device.
        scheduler: The queues; only ever touched under this object's lock.
        finish: Called on the device thread with a run and its raw outputs; must hand them on and return at once. Who
            finishes calls `finishing` first, and `landed` and `finished` afterwards, or `failed`.
        short: Called with a run that ran out of memory and was set aside; must return at once. Who makes room calls
            `resume` afterwards.
        lost: Called when a model's queue, or with None every queue, is lost with all requests in it.
        stall_limit_s: Seconds from which a batch may count as hung, and nothing but failures as a broken device.
    """

    def __init__(
        self,
        device: Device,
        scheduler: Scheduler,
        finish: Callable[[Run, Any], None],
        short: Callable[[Run], None],
        lost: Callable[[LoadedModel | None], None],
        *,
        stall_limit_s: float,
    ) -> None:
        self.device = device
        self._scheduler = scheduler
        self._finish = finish
        self._short = short
        self._lost = lost
        self._stall_limit_s = stall_limit_s
        self._ahead = LAUNCHED_AHEAD if device.asynchronous else 1
        self._wake = threading.Condition()
        self._again: deque[Run] = deque()
        """Parts of failed batches; they run before anything that waits."""
        self._flying: set[Run] = set()
        """Runs the device has not ended."""
        self._watched: set[Run] = set()
        """Runs whose outputs are not finished."""
        self._failing = Failing(stall_limit_s)
        self._policies = Row()
        """Failures of batch policies since a batch was last formed."""
        self._deciding_since: float | None = None
        self._launched = 0
        self._last_end = 0.0
        self._closing = False
        self._death: str | None = None
        self._thread = threading.Thread(target=self._main, name=f"sie-device-{device}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self, timeout_s: float) -> bool:
        """Stop after the batch that runs; False where it still ran after `timeout_s`. What waits is not run."""
        with self._wake:
            self._closing = True
            self._wake.notify_all()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def add_model(self, model: LoadedModel) -> None:
        """Serve a model's queue."""
        with self._wake:
            self._scheduler.add_model(model)
            self._failing.add(model)

    def remove_model(self, model: LoadedModel) -> None:
        """Stop serving a model's queue; nothing may wait in it."""
        with self._wake:
            self._scheduler.remove_model(model)
            self._failing.remove(model)

    def submit(self, model: LoadedModel, units: Sequence[FlightUnit]) -> None:
        """Queue the units of one request.

        Raises:
            InferenceError: `QUEUE_FULL`; `QUEUE_UNAVAILABLE` where the thread is gone or the batch policy fails.
        """
        with self._wake:
            if self._closing or self._death is not None:
                raise unavailable("the device is gone" if self._death else "the engine is closing")
            now = clock()  # under the lock: a policy is promised times that do not decrease
            for unit in units:
                unit.enqueued_at = now
            try:
                self._scheduler.submit(model, units)
            except PolicyError as error:
                self._policy_failed(model, error)
                raise unavailable(f"the queue of {model.id} was lost") from error
            self._wake.notify()

    def drop(self, flight: Flight) -> None:
        """Take what is queued of a settled request out of the queue."""
        with self._wake:
            try:
                dropped = flight.model.policy.cancel(flight)
            except Exception as error:
                self._policy_failed(flight.model, error)
                return
        flight.model.metrics.dropped(flight.error, dropped)

    def queued(self) -> tuple[int, int]:
        """Return the units and the cost units that wait."""
        with self._wake:
            return self._scheduler.queued_units, self._scheduler.queued_cost

    def queued_by_model(self) -> dict[str, int]:
        """Return the units that wait, of each model that has any."""
        with self._wake:
            return self._scheduler.queued_by_model()

    def activity(self) -> tuple[int, int]:
        """Return what changes with every batch that begins or ends: how many began so far, and how many are at work."""
        with self._wake:
            return self._launched, len(self._watched)

    def problem(self) -> str | None:
        """Say what is wrong: the device is lost or fails whatever it is given, its thread is dead, or a batch hangs.

        Takes no lock that any of these could hold.
        """
        if self._death is not None:
            return self._death
        if self._thread.ident is not None and not self._thread.is_alive() and not self._closing:
            return f"the thread of device {self.device} has died"
        if (failing := self._failing.device_problem()) is not None:
            return f"device {self.device} seems broken: {failing}"
        now, since = clock(), self._deciding_since
        if since is not None and now - since > self._stall_limit_s:
            return f"a batch policy has been at work for {now - since:.0f} s, and nothing runs"
        hung = (run.problem(now, self._stall_limit_s) for run in tuple(self._watched))
        return next(filter(None, hung), None)

    def policy_problem(self) -> str | None:
        """Say that batch policies fail and nothing runs; a while after the last failure new requests try them again."""
        row = self._policies
        if row.failed < POLICY_FAILURES or clock() - row.last > self._stall_limit_s:
            return None
        return f"batch policies failed {row.failed} times in a row and nothing ran; the server's log says why"

    def failing(self, model: LoadedModel) -> str | None:
        """Say that requests to a model fail one after the other."""
        return self._failing.problem(model)

    def lose(self, error: DeviceLost) -> None:
        """Give the device up, and every request; only a new process gets it back."""
        self._die(f"device {self.device} is lost, the process must be restarted", error)

    def finishing(self, run: Run) -> None:
        """Note that somebody begins to finish a run: until now it waited, for long where many do."""
        run.at_work_since = clock()

    def landed(self, run: Run) -> None:
        """Note that the device is through with a run, and learn how long it took; a second call changes nothing."""
        with self._wake:
            if run not in self._flying:
                return
            self._flying.discard(run)
            waited = run.started - min((unit.enqueued_at for unit in run.units), default=run.started)
            run.started, run.ended = max(run.started, self._last_end), clock()
            self._last_end = run.ended
            seconds = run.ended - run.started
            try:
                self._scheduler.record(run.model, run.batch, seconds)
            except PolicyError:
                log.exception("the batch policy of %s failed to learn from a batch", run.model.id)
            self._wake.notify()
        run.model.metrics.ran(run.batch, waited, seconds)

    def finished(self, run: Run) -> None:
        """Note that a run's outputs are finished."""
        with self._wake:
            self._failing.succeeded(run.model)
            self._watched.discard(run)
        run.release()

    def failed(self, run: Run, error: BaseException, stage: str) -> None:
        """Split a run that failed in `stage` and try its parts again, or fail the one request that is left.

        A run that is the first to lack memory is set aside until `resume`; it goes on holding its model. With the
        device lost every request is lost.
        """
        if isinstance(error, DeviceLost):
            self.lose(error)
            self._let_go(run)
            return
        if isinstance(error, OUT_OF_MEMORY) and run.leave_out_settled():
            run.model.metrics.out_of_memory.inc()
            log.warning("%s ran out of device memory in a batch of cost %d", run.model.id, run.batch.cost)
            if not run.after_freeing:
                self._forget(run)
                self._short(run)
                return
        self._try_again(run, self._parts(run, error, stage))

    def resume(self, run: Run, *, freed: bool) -> None:
        """Go on with a run that was set aside: whole where memory was freed for it, in parts where none was."""
        whole = [Run(run.model, run.batch, after_freeing=True)]
        self._try_again(run, whole if freed else _smaller(run) or whole)

    def _try_again(self, run: Run, parts: Sequence[Run]) -> None:
        for part in parts:
            part.lease = run.model.leases.acquire()
            with self._wake:
                self._again.append(part)
        self._let_go(run)

    def _let_go(self, run: Run) -> None:
        self._forget(run)
        run.release()

    def _forget(self, run: Run) -> None:
        with self._wake:
            self._flying.discard(run)
            self._watched.discard(run)
            self._wake.notify()

    def _main(self) -> None:
        try:
            while (run := self._next_run()) is not None:
                self._execute(run)
                del run  # an idle thread must not keep the last batch alive
        except BaseException as error:
            # Whatever came here is not a batch's failure: nothing runs any more, and everybody must learn it.
            self._die(f"the thread of device {self.device} has died ({type(error).__name__})", error)

    def _die(self, why: str, error: BaseException) -> None:
        """Run nothing any more, and have everybody told; a second call changes nothing."""
        with self._wake:
            if self._death is not None:
                return
            self._death = why
            self._wake.notify_all()
        log.critical("%s", why, exc_info=error)
        self._lost(None)

    def _next_run(self) -> Run | None:
        """Wait for the next batch; None when the engine closes."""
        with self._wake:
            while not self._closing and self._death is None:
                try:
                    self._deciding_since = clock()
                    run = self._choose(now := clock())
                    self._deciding_since = None
                    if run is not None:
                        run.started = run.at_work_since = now
                        self._launched += 1
                        self._flying.add(run)
                        self._watched.add(run)
                        return run
                    self._wake.wait(self._longest_wait(now))
                except PolicyError as error:
                    self._policy_failed(error.model, error)
                    self._wake.wait(LEAST_WAIT_S)
        return None

    def _choose(self, now: float) -> Run | None:
        self._expire(now)
        if not self._may_launch():
            return None
        if self._again:
            return self._again.popleft()
        chosen = self._scheduler.next(now, device_busy=bool(self._flying))
        if chosen is None:
            return None
        self._policies.failed = 0
        return Run(*chosen, lease=chosen[0].leases.acquire())

    def _may_launch(self) -> bool:
        """Whether a batch may be given to the device now; one that lacked memory runs with none beside it."""
        if not self._flying:
            return True
        short = any(run.after_freeing for run in (*self._flying, *self._again))
        return not short and len(self._flying) < self._ahead

    def _longest_wait(self, now: float) -> float | None:
        """Return the seconds until a batch is ready without anything coming; None where nothing will be."""
        ready_at = self._scheduler.ready_at(now) if self._may_launch() else None
        return None if ready_at is None else min(threading.TIMEOUT_MAX, max(LEAST_WAIT_S, ready_at - now))

    def _policy_failed(self, model: LoadedModel, error: Exception) -> None:
        log.error("the batch policy of %s failed; its queue is lost", model.id, exc_info=error)
        self._policies.add(clock())
        self._failing.failed(model, clock())
        model.policy.lose(error.__cause__ or error)
        try:
            model.policy = model.new_policy()
        except Exception:
            log.exception("the batch policy of %s cannot be made again; the old one is used on", model.id)
        self._lost(model)

    def _expire(self, now: float) -> None:
        for expired in self._scheduler.expire(now):
            expired.model.metrics.dropped(deadline_exceeded(), expired.units)
            for flight in expired.requests:
                cast("Flight", flight).fail(deadline_exceeded())

    def _execute(self, run: Run) -> None:
        if not run.leave_out_settled():
            self._let_go(run)
            return
        failure: BaseException | None = None
        try:
            raw = run.model.adapter.run([unit.made for unit in run.units])
        except OUT_OF_MEMORY:
            failure = MemoryError()  # the original's frames would keep alive what must be freed
        except BaseException as error:
            failure = error
        if failure is not None:
            self.failed(run, failure, "its forward pass")
            failure = None  # it and this frame would hold each other, and the requests
            return
        if not self.device.asynchronous:
            self.landed(run)
        run.at_work_since = None
        self._finish(run, raw)

    def _parts(self, run: Run, error: BaseException, stage: str) -> list[Run]:
        """Return what is to be tried again of a failed run, having failed what is not."""
        if not run.leave_out_settled():
            return []
        if isinstance(error, OUT_OF_MEMORY):
            return _smaller(run) or self._fail(run, out_of_memory(run.model.id))
        run.model.metrics.failed_batches.inc()
        if batches := halves_by_request(run):
            log.warning(
                "a batch of %d requests to %s failed (%s)", run.batch.requests, run.model.id, type(error).__name__
            )
            return [Run(run.model, batch) for batch in batches]
        (flight,) = run.flights()
        if not isinstance(error, InferenceError):
            with self._wake:
                self._failing.failed(run.model, clock())
        return self._fail(run, request_error(error, stage, flight.request.request_id, run.model.id))

    def _fail(self, run: Run, error: InferenceError) -> list[Run]:
        """Fail the one request of a run, and let its queued rest go; nothing is left to be tried again."""
        (flight,) = run.flights()
        flight.fail(error)
        self.drop(flight)
        return []


def _smaller(run: Run) -> list[Run]:
    """Halve a run that lacks memory; nothing where it is a single unit."""
    return [Run(run.model, batch, after_freeing=True) for batch in halves_by_unit(run)]
