"""Prepares a request slice by slice: each when there is room for it, behind the preparation of other requests."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from sie_core.concurrency.pool import CpuPool, Work
from sie_core.concurrency.room import MIB, Room
from sie_core.contracts import InferenceRequest, ItemOutput, Task, Unit
from sie_core.engine.device.batch_run import Run
from sie_core.engine.device.queue import DeviceQueue
from sie_core.engine.device.worker import QUICK_S, work_s
from sie_core.engine.models.loaded import LoadedModel
from sie_core.engine.pipeline.assembly import Assembly, ItemParts
from sie_core.engine.requests.errors import request_error
from sie_core.engine.requests.inflight import Flight, FlightUnit
from sie_core.postprocess.plan import OutputPlan

# Slices per batch. With several, the device begins before a whole batch is prepared.
SLICES_A_BATCH: Final = 2
SLICE_BYTES: Final = 4 * MIB
# Batches of a request that are prepared ahead: one or two are on the device, and the next must find a full one.
BATCHES_AHEAD: Final = 4
# Bytes of the engine's own objects per unit, in addition to those that the unit states.
BYTES_A_UNIT: Final = 1024
# A slice ends with the first unit after this many seconds, unless it is of the last item: others wait for the thread.
SLICE_S: Final = 0.025
# Characters. While nothing runs, the device's own thread prepares a text that is no longer, with instruction and
# labels, if the model's last one was quick. Waking another thread takes as long.
SHORT: Final = 4096


@dataclass(frozen=True, slots=True)
class Preparing:
    """The resources shared by the preparation of similar requests."""

    threads: CpuPool
    room: Room
    queue: DeviceQueue
    clock: Callable[[], float]


@dataclass(slots=True, eq=False)
class SliceUnit(FlightUnit):
    """A queued unit with the place of its output."""

    request: SlicedFlight
    parts: ItemParts = field(kw_only=True)


class SlicedFlight(Flight):
    """An inference request that is prepared in slices. `begin` and `close` are called on the event loop."""

    def __init__(
        self,
        request: InferenceRequest,
        model: LoadedModel,
        task: Task,
        plan: OutputPlan,
        arrived: float,
        preparing: Preparing,
    ) -> None:
        super().__init__(request, model, model.leases.acquire(), task, arrived, preparing.clock())
        self.assembly = Assembly(request, task, plan, model.adapter)
        self._with = preparing
        self._batch_cost = model.limits.max_cost
        self._units: Iterator[Unit | None] | None = None
        self._first = True  # whether no slice of it has been prepared
        self._quick = False
        # Guards the following fields. Between two slices the flight waits for a thread (`_work`), or for room.
        self._stage = threading.Lock()
        self._work: Work | None = None
        self._at_work = self._ended = False

    def begin(self) -> None:
        """Have a thread prepare the first slice."""
        self._quick = self._is_quick()
        if self._quick and not self._with.threads.waiting and self._with.queue.call_if_idle(self._step):
            return
        self.start()

    def start(self) -> None:
        """Have a thread prepare the next slice; from any thread."""
        with self._stage:
            if not self._ended:
                self._work = self._with.threads.submit(self._step, quick=self._quick)

    def close(self) -> None:
        """Stop preparing, and release everything counted for it; the flight is settled."""
        with self._stage:
            # A thread that works on it notices that it is settled.
            ends = not self._at_work and not self._ended
            self._ended = self._ended or ends
        if ends:
            self._end()
        self._with.room.forget(self)

    def give(self, units: Sequence[SliceUnit]) -> None:
        """Count units that have run as held no longer."""
        cost = nbytes = 0
        for unit in units:
            cost, nbytes = cost + unit.made.cost, nbytes + unit.made.nbytes + BYTES_A_UNIT
        self._with.room.give(self, cost, nbytes)

    def complete(self) -> None:
        """Answer with the assembled outputs."""
        self.succeed(self.assembly.reply(self.timing(self._with.clock())))

    def _is_quick(self) -> bool:
        request = self.request
        if self.model.prepare_s > QUICK_S or len(request.items) != 1:
            return False
        if request.query is not None or request.output_schema is not None:
            return False
        item = request.items[0]
        if item.text is None or item.images or item.audio or item.video or item.document:
            return False
        # Families prepare the instruction and the labels with the text.
        return len(item.text) + len(request.instruction or "") + sum(map(len, request.labels)) <= SHORT

    def _step(self) -> None:
        with self._stage:
            self._work = None
            if self._ended:
                return
            ahead = BATCHES_AHEAD * self._batch_cost
            if not self.settled and not self._with.room.enter(self, ahead, self.start):
                return
            self._at_work = True
        more = False
        try:
            more = not self.settled and self._prepare()
        except BaseException as error:
            self.fail(request_error(error, "preparation", self.request.request_id, self.model.id, self.trace_id))
        with self._stage:
            ends = not more or self.settled
            self._at_work, self._ended = False, ends
            if not ends:
                self._work = self._with.threads.submit(self._step)
        if ends:
            self._end()
        if self.settled:
            self._with.room.forget(self)  # it may have been forgotten before this slice was counted
        else:
            self._with.room.wake()

    def _prepare(self) -> bool:
        # Prepare a slice; return whether there may be another.
        started, cpu_s = self._with.clock(), time.thread_time()
        if self._units is None:
            self.prepare_started = started
            self._units = self.assembly.prepare()
        queued, cost, nbytes, ended = self._slice(self._units, started)
        if self._first and (queued or ended):
            self._first = False
            self.prepared = self._with.clock()
            if len(self.request.items) == 1:
                self.model.prepare_s = work_s(self.prepared - started, time.thread_time() - cpu_s)
            # The cost of all items, extrapolated from the first ones; the slice may end in the middle of an item.
            self.more_cost = cost * len(self.request.items) // (queued[-1].made.item + 1) if queued else 0
        self.more_cost = 0 if ended else max(0, self.more_cost - cost)
        if ended and self.assembly.end():
            self.complete()
        if queued and not self.settled:
            self._with.room.take(self, cost, nbytes)
            self._with.queue.submit(self, queued)
            if self.settled:  # it was given up while its units were on their way into the queue
                self._with.queue.cancel(self)
        return not ended

    def _slice(self, units: Iterator[Unit | None], started: float) -> tuple[list[SliceUnit], int, int, bool]:
        # Take units until the slice is full; return them, their cost, their bytes, and whether there are no more.
        queued: list[SliceUnit] = []
        cost = nbytes = 0
        for unit in units:
            if unit is not None:
                queued.append(self._queued(unit))
                cost, nbytes = cost + unit.cost, nbytes + unit.nbytes + BYTES_A_UNIT
            full = SLICES_A_BATCH * cost >= self._batch_cost or nbytes >= SLICE_BYTES
            # After the last item's units usually comes the end, which must not wait for room behind other requests.
            last = unit is not None and unit.item + 1 >= len(self.request.items)
            if full or self.settled or (not last and self._with.clock() - started >= SLICE_S):
                return queued, cost, nbytes, False
        return queued, cost, nbytes, True

    def _queued(self, made: Unit) -> SliceUnit:
        parts, place = self.assembly.add(made)
        # Two LoRA adapters never share a run, whatever keys a family gives.
        lora = self.task.lora
        unit = made if lora is None else replace(made, key=(lora, made.key))
        return SliceUnit(unit, self, index=place, made=made, parts=parts)

    def _end(self) -> None:
        work, self._work, self._units = self._work, None, None
        if work is not None:
            self._with.threads.remove(work)  # its body would wait for a thread, and nothing counts it any more
        self.lease.release()


def deliver(run: Run, outputs: Sequence[ItemOutput]) -> None:
    """Hand the outputs of a run to its requests, on any thread; each is answered with its last."""
    ended: dict[SlicedFlight, list[SliceUnit]] = {}
    for unit, output in zip(run.units, outputs, strict=True):
        assert isinstance(unit, SliceUnit)
        ended.setdefault(unit.request, []).append(unit)
        _deliver_output(run, unit, output)
    for flight, units in ended.items():
        flight.give(units)


def _deliver_output(run: Run, unit: SliceUnit, output: ItemOutput) -> None:
    flight = unit.request
    if flight.settled:
        return
    try:
        flight.ran(run.started, run.ended)
        if flight.assembly.deliver(unit.parts, unit.index, output):
            flight.complete()
    except BaseException as error:
        failure = request_error(error, "postprocessing", flight.request.request_id, run.model.id, flight.trace_id)
        if failure.code == "NON_FINITE_OUTPUT":
            run.model.metrics.non_finite.inc()
        flight.fail(failure)
        del failure  # it and this frame would hold each other, and the request
