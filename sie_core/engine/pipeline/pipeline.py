"""The stages of one request: prepare on CPU threads, run on the device thread, finish and encode on CPU threads.

A request changes threads four times: to a CPU thread, to the device's, to a CPU thread, back to the event loop. It must
not know HTTP, the catalog or how models are loaded.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from sie_core.concurrency.loop import call_soon
from sie_core.concurrency.pool import CpuPool
from sie_core.contracts import (
    DecodeRequest,
    Device,
    InferenceReply,
    InferenceRequest,
    ItemOutput,
    StageStatus,
    Task,
    TokenizeRequest,
    Unit,
)
from sie_core.engine.device.batch_run import Run, flight_of
from sie_core.engine.device.scheduler import Scheduler
from sie_core.engine.device.worker import DeviceWorker
from sie_core.engine.models.loaded import LoadedModel
from sie_core.engine.pipeline.scoring import assemble
from sie_core.engine.pipeline.tokenizer_pool import Tokenizing, Tokens
from sie_core.engine.requests.errors import deadline_exceeded, given_up, request_error, unavailable
from sie_core.engine.requests.inflight import Assembling, Flight, FlightUnit
from sie_core.engine.requests.output import Leaving

log = logging.getLogger(__name__)

GIVE_UP_FACTOR = 5.0
"""How many stall limits preparing a request may take: nobody predicts it, and others may keep the cores busy."""
LOOKS_A_LIMIT = 4
"""How often stages are looked at within a stall limit."""


class Pipeline:
    """Answers requests to loaded models on one device.

    Preparing and finishing have threads of their own, so that a flood of new requests cannot hold up answers; so have
    requests with images, so that no text waits behind the decoding of a picture.

    Args:
        device: Where batches run.
        threads: CPU threads of each stage.
        image_threads: CPU threads that prepare requests with images.
        max_queued_cost: Cost units that may wait for the device.
        free_up: Makes room for a model, by its id, that ran out of memory; returns whether there is more than before.
        stall_limit_s: Seconds from which a batch may count as hung, and a thread that prepares is told; after
            `GIVE_UP_FACTOR` times as many the request is not waited for.
    """

    def __init__(
        self,
        device: Device,
        threads: int,
        image_threads: int,
        max_queued_cost: int,
        free_up: Callable[[str], Awaitable[bool]],
        stall_limit_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._preparing = CpuPool("sie-prepare", threads)
        self._seeing = CpuPool("sie-image", image_threads)
        self._finishing = CpuPool("sie-finish", threads)
        self._stall_limit_s = stall_limit_s
        self._give_up_s = GIVE_UP_FACTOR * stall_limit_s
        self._watch: asyncio.Task[None] | None = None
        self._tokenizing = Tokenizing(self._give_up_s)
        self._flights: set[Flight] = set()
        self._stopped_because: str | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._free_up = free_up
        self._freeing: set[asyncio.Task[None]] = set()
        self.device = DeviceWorker(
            device,
            Scheduler(max_queued_cost),
            self._finishing,
            self._deliver,
            self._out_of_memory,
            self._lost,
            stall_s=stall_limit_s,
            clock=clock,
        )

    def start(self) -> None:
        """Start every thread; called on the event loop."""
        self._loop = asyncio.get_running_loop()
        for part in (self._preparing, self._seeing, self._finishing, self._tokenizing, self.device):
            part.start()
        self._watch = asyncio.create_task(self._give_up_stalled())

    def stop(self, why: str) -> None:
        """Answer every request with `QUEUE_UNAVAILABLE` from now on; on the event loop, before `close`.

        One that was admitted earlier may still come: it waited for its model, or for a LoRA adapter.
        """
        self._stopped_because = why
        if self._watch is not None:
            self._watch.cancel()
        self.fail_all(why)
        self._tokenizing.fail_all(why)

    def problem(self) -> str | None:
        """Say what is wrong with the device, or which stage of every request hangs."""
        hung = (pool.problem(self._give_up_s) for pool in (self._preparing, self._seeing))
        return self.device.health.problem() or next(filter(None, hung), None)

    def notes(self) -> list[str]:
        """List the threads that hang, whether or not others do their work."""
        pools = (self._preparing, self._seeing, self._tokenizing.pool)
        return [note for pool in pools if (note := pool.note(self._stall_limit_s))]

    def stages(self) -> dict[str, StageStatus]:
        """Count what waits for the threads of each stage, and what is at work."""
        pools = {
            "prepare": self._preparing,
            "image": self._seeing,
            "finish": self._finishing,
            "tokenize": self._tokenizing.pool,
        }
        return {name: StageStatus(pool.waiting, pool.at_work) for name, pool in pools.items()}

    def close(self, timeout_s: float) -> bool:
        """Join every thread; False where one was still at work after `timeout_s` each."""
        parts = (self.device, self._preparing, self._seeing, self._finishing, self._tokenizing)
        joined = [part.close(timeout_s) for part in parts]
        return all(joined)

    def fail_all(self, why: str, model: LoadedModel | None = None) -> None:
        """Answer every request in flight, or those to `model`, with `QUEUE_UNAVAILABLE`; on the event loop."""
        for flight in list(self._flights):
            if model is None or flight.model is model:
                flight.fail(unavailable(why))

    async def answer(
        self, request: InferenceRequest, model: LoadedModel, task: Task, leaving: Leaving, arrived: float
    ) -> InferenceReply:
        """Answer a checked request; cancelling the call, or its deadline, drops what is queued of it.

        Raises:
            InferenceError: Any failure, with its code.
        """
        self._require_running()
        flight = Flight(request, model, model.leases.acquire(), task, leaving, arrived, self._clock())
        timer = self._deadline(flight)
        self._flights.add(flight)
        pool = self._seeing if _has_images(request) else self._preparing
        work = pool.submit(self._prepare, flight, give_up=lambda at_work: self._give_up(flight, at_work))
        try:
            reply = await flight.future
            model.metrics.answered(reply)
            return reply
        finally:
            self._flights.discard(flight)
            if timer is not None:
                timer.cancel()
            if flight.abandon() or flight.error is not None:
                if pool.remove(work):  # its body would wait for a thread, and nothing counts it any more
                    flight.lease.release()
                self._drop(flight)
            flight.forget()

    async def tokenize(self, request: TokenizeRequest, model: LoadedModel) -> Tokens:
        """List the tokens of texts; the device takes no part in it.

        Raises:
            InferenceError: Any failure, with its code.
        """
        self._require_running()
        return await self._tokenizing.tokens(model, request)

    async def decode(self, request: DecodeRequest, model: LoadedModel) -> Sequence[str]:
        """Write the texts of tokens; the device takes no part in it.

        Raises:
            InferenceError: Any failure, with its code.
        """
        self._require_running()
        return await self._tokenizing.texts(model, request)

    def _require_running(self) -> None:
        if self._stopped_because is not None:
            raise unavailable(self._stopped_because)

    async def _give_up_stalled(self) -> None:
        """Have no request wait for ever for a thread that hangs."""
        while True:
            await asyncio.sleep(self._stall_limit_s / LOOKS_A_LIMIT)
            for pool in (self._preparing, self._seeing, self._tokenizing.pool):
                pool.give_up(self._give_up_s)

    def _give_up(self, flight: Flight, at_work: bool) -> None:
        if not flight.settled:
            request_id, model = flight.request.request_id, flight.model.id
            flight.fail(given_up(at_work, "preparation", request_id, model, self._give_up_s))
        if not at_work:
            flight.lease.release()

    def _deadline(self, flight: Flight) -> asyncio.TimerHandle | None:
        if flight.request.deadline is None:
            return None
        left = max(0.0, flight.request.deadline - self._clock())
        return asyncio.get_running_loop().call_later(left, lambda: flight.fail(deadline_exceeded()))

    def _drop(self, flight: Flight) -> None:
        """Let a flight go that will not be answered."""
        if flight.future.done() and not flight.future.cancelled():
            flight.future.exception()  # looked at here, should a cancelled call not have
        self.device.queue.cancel(flight)

    def _prepare(self, flight: Flight) -> None:
        model, request = flight.model, flight.request
        try:
            if flight.settled:
                return
            flight.prepare_started = self._clock()
            flight.assembly = assemble(request, flight.task, flight.leaving, model.adapter)
            flight.prepared = self._clock()
            if not flight.settled:
                self.device.queue.submit(model, _queue_up(flight, flight.assembly.units))
                if flight.settled:  # it was given up while its units were on their way into the queue
                    self.device.queue.cancel(flight)
        except BaseException as error:
            flight.fail(request_error(error, "preparation", request.request_id, model.id))
        finally:
            flight.lease.release()

    def _deliver(self, run: Run, outputs: Sequence[ItemOutput]) -> None:
        for unit, output in zip(run.units, outputs, strict=True):
            self._deliver_one(run, unit, output)

    def _deliver_one(self, run: Run, unit: FlightUnit, output: ItemOutput) -> None:
        flight = flight_of(unit)
        if flight.settled or flight.assembly is None:
            return
        try:
            flight.ran(run.started, run.ended)
            if flight.assembly.deliver(unit.index, output):
                self._reply(flight, flight.assembly)
        except BaseException as error:
            failure = request_error(error, "postprocessing", flight.request.request_id, run.model.id)
            if failure.code == "NON_FINITE_OUTPUT":
                run.model.metrics.non_finite.inc()
            flight.fail(failure)
            del failure  # it and this frame would hold each other, and the request

    def _reply(self, flight: Flight, assembly: Assembling) -> None:
        items, usage, truncated = assembly.items(), assembly.usage(), assembly.truncated()
        lora = None if flight.task.lora is None else flight.task.lora.name
        flight.succeed(InferenceReply(items, flight.timing(self._clock()), usage, truncated, lora))

    def _out_of_memory(self, run: Run) -> None:
        """Have room made for a run that lacks memory; called from any thread."""
        if self._loop is None or not call_soon(self._loop, self._start_freeing, run):
            self.device.resume(run, freed=False)

    def _start_freeing(self, run: Run) -> None:
        task = asyncio.create_task(self._make_way(run))
        self._freeing.add(task)
        task.add_done_callback(self._freeing.discard)

    async def _make_way(self, run: Run) -> None:
        freed = False
        try:
            freed = await self._free_up(run.model.id)
        except Exception:
            log.exception("making room for %s failed", run.model.id)
        finally:
            self.device.resume(run, freed=freed)

    def _lost(self, model: LoadedModel | None) -> None:
        """Answer what can no longer run; called on the device thread."""
        why = "the device is gone" if model is None else f"the queue of {model.id} was lost"
        if self._loop is not None:
            call_soon(self._loop, self.fail_all, why, model)


def _has_images(request: InferenceRequest) -> bool:
    return any(item.images for item in request.items) or bool(request.query and request.query.images)


def _queue_up(flight: Flight, units: Sequence[Unit]) -> list[FlightUnit]:
    """Make the queued units of a request; two LoRA adapters never share a run, whatever keys a family gives."""
    deadline, lora = flight.request.deadline, flight.task.lora
    queued = units if lora is None else [replace(unit, key=(lora, unit.key)) for unit in units]
    return [
        FlightUnit(unit, flight, flight.prepared, deadline, index=index, made=made)
        for index, (unit, made) in enumerate(zip(queued, units, strict=True))
    ]
