"""The worker of one device: takes the next batch and runs it. A batch that fails does not end its thread."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

from sie_core.batching.checked import CheckedScheduler
from sie_core.concurrency.pool import CpuPool
from sie_core.contracts import Device, DeviceLost, InferenceError, ItemOutput, preempted_by
from sie_core.engine.device.batch_run import Run, after_failure, after_freeing, trace_batch
from sie_core.engine.device.health import DeviceHealth
from sie_core.engine.device.on_device import OnDevice
from sie_core.engine.device.queue import DeviceQueue
from sie_core.engine.requests.errors import OUT_OF_MEMORY, request_error
from sie_core.memory.heap import trim_heap

log = logging.getLogger(__name__)

# Batches an asynchronous device is given at once: one runs, the next is there when it ends.
LAUNCHED_AHEAD = 2
# The device's own thread prepares a text or finishes outputs of a model whose last ones took no longer.
QUICK_S = 0.001
# Outputs of one unit that take at most this many seconds, by the model's last ones, skip the queue for a thread.
BRIEF_S = 0.005
# A call that took longer was waiting for something, not only held up by other computation.
WAITED_S = 0.01


class DeviceWorker:
    """Runs the batches of every model on one device, on a thread of its own.

    The life of a batch: `step` takes it from the queue and runs it. `_finish` makes its outputs, usually on a thread of
    `finishing`. If either raises, `_failed` retries parts of the batch, or fails its one remaining request.
    """

    def __init__(
        self,
        device: Device,
        scheduler: CheckedScheduler,
        finishing: CpuPool,
        deliver: Callable[[Run, Sequence[ItemOutput]], None],
        out_of_memory: Callable[[Run], None],
        lost: Callable[[str], None],
        *,
        stall_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.device = device
        self.health = DeviceHealth(stall_s, clock)
        on_device = OnDevice(LAUNCHED_AHEAD if device.asynchronous else 1, self.health.unfinished)
        self.queue = DeviceQueue(scheduler, self.health, lambda: lost("the queue was lost"), clock, on_device)
        self._finishing = finishing
        self._deliver = deliver  # gets a run and its outputs, one a unit
        self._out_of_memory = out_of_memory  # gets a run, returns at once; whoever freed memory calls `resume`
        self._lost = lost  # gets why no request that is in flight will be answered
        self._clock = clock
        self._thread = threading.Thread(target=self._main, name=f"sie-device-{device}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self, timeout_s: float) -> bool:
        """Stop after the current batch; False if it still runs after `timeout_s` seconds. Waiting work is not run."""
        self.queue.close("the engine is closing")
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def resume(self, run: Run, *, freed: bool) -> None:
        """Go on with a run that was set aside; from any thread."""
        self._try_again(run, after_freeing(run, freed=freed))

    def mark_lost(self, error: DeviceLost) -> None:
        """Turn every request away from now on; only a new process gets the device back. Callable from any thread."""
        self._die(f"device {self.device} is lost, the process must be restarted", error)

    def _main(self) -> None:
        try:
            while self.step():
                pass
        except BaseException as error:
            # Not a failure of a batch: those are handled. Nothing runs from now on, so fail all requests and report it
            # to health.
            self._die(f"the thread of device {self.device} has died ({type(error).__name__})", error)

    def step(self) -> bool:
        """Wait for the next batch, run it and have its outputs finished; False once closed."""
        work = self.queue.next()
        if isinstance(work, Run):
            self._run(work)
        elif work is not None:
            self._prepare(work)
        return work is not None

    def _prepare(self, call: Callable[[], None]) -> None:
        self.health.preparing_since = self._clock()
        try:
            call()
        except BaseException:
            log.exception("a task of the device's thread failed beyond its own handling")
        self.health.preparing_since = None

    def _run(self, run: Run) -> None:
        if not run.leave_out_settled():
            self._end(run)
            return
        raw, failure = _attempt(self._forward, run)
        if failure is None:
            if not self.device.asynchronous:
                self.queue.device_done(run)
            if self._finishes_here(run):
                self._finish(run, raw)
            else:
                run.at_work_since = None
                # With an asynchronous device, finish the runs in the order in which the device ends them.
                quick = not self.device.asynchronous and self._is_brief(run, BRIEF_S)
                self._finishing.submit(self._finish, run, raw, quick=quick)
        else:
            self._failed(run, failure, "its forward pass")
            failure = None  # it and this frame would hold each other, and the requests

    def _forward(self, run: Run) -> Any:
        # A batch that ran out of memory is retried alone.
        preemptible = run.batch.preemptible and not run.after_freeing and not self.device.asynchronous
        with preempted_by(partial(self._preempt, run)) if preemptible else nullcontext():
            return run.model.adapter.run([unit.made for unit in run.units])

    def _preempt(self, run: Run) -> None:
        try:
            short = self.queue.preempting(run)
            if short is not None:
                with preempted_by(None):  # neither its run nor its finishing is
                    self._run(short)
                self.queue.resumed(run, short)
        except BaseException as error:  # not a failure of the run that is preempted
            self._die(f"the thread of device {self.device} has died ({type(error).__name__})", error)

    def _finishes_here(self, run: Run) -> bool:
        # If nothing waits for this thread, it finishes the outputs of one unit sooner than another thread would wake
        # up. It is sooner by far if the finishing threads are busy with megabytes, or all cores with the preempted run.
        if self.device.asynchronous or not self._is_brief(run, QUICK_S):
            return False
        return run.within is not None or self._finishing.busy or not self.queue.queued()[0]

    def _is_brief(self, run: Run, most_s: float) -> bool:
        return len(run.units) == 1 and run.model.finish_s <= most_s

    def _finish(self, run: Run, raw: Any) -> None:
        since = run.at_work_since = self._clock()  # before, it waited for a thread, possibly for long
        cpu_s = time.thread_time()
        outputs, failure = _attempt(self._outputs, run, raw)
        if failure is not None:
            self._failed(run, failure, "finishing its outputs")
            failure = None  # it and this frame would hold each other, and the requests
            return
        if self.device.asynchronous:
            self.queue.device_done(run)
        self.health.model_ran(run.model, failed=False)  # before answered clients ask again, and may fail
        try:
            self._deliver(run, outputs)
        finally:
            run.model.finish_s = work_s(self._clock() - since, time.thread_time() - cpu_s)
            self._end(run)

    def _outputs(self, run: Run, raw: Any) -> Sequence[ItemOutput]:
        units = [unit.made for unit in run.units]
        if self.device.asynchronous and run.model.adapter.await_device(units, raw):
            self.queue.device_done(run)  # before `finish`, whose time is not the device's
        outputs = run.model.adapter.finish(units, raw)
        if len(outputs) != len(units):
            raise ValueError(f"the adapter finished {len(outputs)} outputs of {len(units)} units")
        return outputs

    def _failed(self, run: Run, error: BaseException, stage: str) -> None:
        tried = len(run.units)
        if isinstance(error, DeviceLost):
            self.mark_lost(error)
        elif run.leave_out_settled():
            metrics = run.model.metrics
            (metrics.out_of_memory if isinstance(error, OUT_OF_MEMORY) else metrics.failed_batches).inc()
            parts = after_failure(run, error, tried)
            trace_batch(run, self._clock(), error, None if parts is None else len(parts))
            if parts is None:
                log.warning("%s lacks device memory for a batch of cost %d", run.model.id, run.batch.cost)
                self.queue.done(run)  # it keeps its lease: its own model must not be evicted for it
                self._out_of_memory(run)
                return
            if parts:
                log.warning("a batch of %s failed (%s) and is split", run.model.id, type(error).__name__)
                self._try_again(run, parts)
                return
            self._fail_request(run, error, stage)
        self._end(run)

    def _try_again(self, run: Run, parts: Sequence[Run]) -> None:
        for part in parts:
            self.queue.retry(part)
        self._end(run)  # only now: between two leases the model could be evicted

    def _fail_request(self, run: Run, error: BaseException, stage: str) -> None:
        (flight,) = run.flights()
        if isinstance(error, OUT_OF_MEMORY):
            trim_heap()  # the heap keeps the run's memory, and the next request may need it elsewhere
        elif not isinstance(error, InferenceError):
            self.health.model_ran(run.model, failed=True)
        flight.fail(request_error(error, stage, flight.request.request_id, run.model.id, flight.trace_id))
        self.queue.cancel(flight)

    def _end(self, run: Run) -> None:
        self.queue.done(run)
        if run.lease is not None:
            run.lease.release()

    def _die(self, why: str, error: BaseException) -> None:
        if self.health.death is not None:
            return
        self.health.death = why
        self.queue.close("the device is gone")
        log.critical("%s", why, exc_info=error)
        self._lost("the device is gone")


def work_s(seconds: float, cpu_s: float) -> float:
    """Return the seconds of a call without delays by other threads, given its wall-clock and CPU seconds.

    On shared cores, a call of a tenth of a millisecond may be held up for many milliseconds.
    """
    return seconds if seconds > WAITED_S else min(seconds, cpu_s)


def _attempt(call: Callable[..., Any], *arguments: Any) -> tuple[Any, BaseException | None]:
    """Return the result of a call, or its exception."""
    try:
        return call(*arguments), None
    except OUT_OF_MEMORY:
        return None, MemoryError()  # the original's frames would keep alive the memory that must be freed
    except BaseException as error:
        return None, error
