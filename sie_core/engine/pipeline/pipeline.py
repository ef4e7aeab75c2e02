"""The stages of one request: prepare on CPU threads, run on the device, finish and encode on CPU threads.

A request changes threads four times: to a CPU thread, to the device's, to a CPU thread, back to the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

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
from sie_core.engine.pipeline.assembly import assemble
from sie_core.engine.pipeline.tokenizing import TokenizerTurns, Tokens, ask_tokenizer
from sie_core.engine.requests.errors import deadline_exceeded, request_error, unavailable
from sie_core.engine.requests.inflight import Answer, Flight, FlightUnit, Pending
from sie_core.engine.requests.output import Leaving
from sie_core.engine.timeouts import Timeouts

log = logging.getLogger(__name__)


class Pipeline:
    """Answers requests to loaded models on one device.

    Args:
        threads: CPU threads of each stage.
        image_threads: CPU threads that prepare requests with images.
        max_queued_cost: Cost units that may wait for the device.
        free_memory: Frees memory for a model, by its id, that ran out of it; returns whether there is more than before.
    """

    def __init__(
        self,
        device: Device,
        threads: int,
        image_threads: int,
        max_queued_cost: int,
        free_memory: Callable[[str], Awaitable[bool]],
        timeouts: Timeouts,
        clock: Callable[[], float],
    ) -> None:
        # A flood of new requests cannot hold up answers, and no text waits behind the decoding of a picture.
        self._preparing = CpuPool("sie-prepare", threads)
        self._seeing = CpuPool("sie-image", image_threads)
        self._finishing = CpuPool("sie-finish", threads)
        self._tokenizers = TokenizerTurns(clock)
        self._free_memory = free_memory
        self._timeouts = timeouts
        self._clock = clock
        self._pending: set[Pending[Any]] = set()
        self._stopped_because: str | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._freeing: set[asyncio.Task[None]] = set()
        self.device = DeviceWorker(
            device,
            Scheduler(max_queued_cost),
            self._finishing,
            self._deliver,
            self._out_of_memory,
            self._lost,
            stall_s=timeouts.stall_s,
            clock=clock,
        )

    def start(self) -> None:
        """Start every thread; called on the event loop."""
        self._loop = asyncio.get_running_loop()
        for part in (self._preparing, self._seeing, self._finishing, self.device):
            part.start()

    def stop(self, why: str) -> None:
        """Answer every request with `QUEUE_UNAVAILABLE` from now on; on the event loop, before `close`."""
        # One that was admitted earlier may still come: it waited for its model, or for a LoRA adapter.
        self._stopped_because = why
        self.fail_all(why)

    def close(self, timeout_s: float) -> bool:
        """Join every thread; False where one was still at work after `timeout_s` each."""
        joined = [part.close(timeout_s) for part in (self.device, self._preparing, self._seeing, self._finishing)]
        return all(joined)

    def problem(self) -> str | None:
        """Say what is wrong with the device, or which stage of every request hangs."""
        hung = (pool.problem(self._timeouts.stage_s) for pool in (self._preparing, self._seeing))
        return self.device.health.problem() or next(filter(None, hung), None)

    def notes(self) -> list[str]:
        """List the threads that hang, whether or not others do their work."""
        return [note for pool in (self._preparing, self._seeing) if (note := pool.note(self._timeouts.stall_s))]

    def stages(self) -> dict[str, StageStatus]:
        """Count what waits for the threads of each stage, and what is at work."""
        pools = {"prepare": self._preparing, "image": self._seeing, "finish": self._finishing}
        return {name: StageStatus(pool.waiting, pool.at_work) for name, pool in pools.items()}

    def fail_all(self, why: str, model: LoadedModel | None = None) -> None:
        """Answer every request in flight, or those to `model`, with `QUEUE_UNAVAILABLE`; on the event loop."""
        for pending in list(self._pending):
            if model is None or pending.model is model:
                pending.fail(unavailable(why))

    async def answer(
        self, request: InferenceRequest, model: LoadedModel, task: Task, leaving: Leaving, arrived: float
    ) -> InferenceReply:
        """Answer a checked request; cancelling the call, or its deadline, removes what is queued of it."""
        self._require_running()
        flight = Flight(request, model, model.leases.acquire(), task, leaving, arrived, self._clock())
        try:
            reply = await self._answered(
                flight, self._seeing if _has_images(request) else self._preparing, self._prepare
            )
        except BaseException:
            self.device.queue.cancel(flight)
            raise
        model.metrics.answered(reply)
        return reply

    async def tokenize(self, request: TokenizeRequest, model: LoadedModel) -> Tokens:
        """List the tokens of texts."""
        tokens: Tokens = await self._by_tokenizer(request, model)
        return tokens

    async def decode(self, request: DecodeRequest, model: LoadedModel) -> Sequence[str]:
        """Write the texts of tokens."""
        texts: Sequence[str] = await self._by_tokenizer(request, model)
        return texts

    async def _by_tokenizer(self, request: TokenizeRequest | DecodeRequest, model: LoadedModel) -> Any:
        async with self._tokenizers.turn(request):
            self._require_running()
            pending: Pending[Any] = Pending(request, model, model.leases.acquire())
            return await self._answered(pending, self._preparing, ask_tokenizer)

    def _require_running(self) -> None:
        if self._stopped_because is not None:
            raise unavailable(self._stopped_because)

    async def _answered(self, pending: Pending[Answer], pool: CpuPool, stage: Callable[[Any], None]) -> Answer:
        self._pending.add(pending)
        timer = self._deadline(pending)
        work = pool.submit(stage, pending)
        try:
            return await pending.future
        finally:
            self._pending.discard(pending)
            if timer is not None:
                timer.cancel()
            unanswered = pending.abandon() or pending.error is not None
            if unanswered and pool.remove(work):  # its body would wait for a thread, and nothing counts it any more
                pending.lease.release()
            pending.forget()

    def _deadline(self, pending: Pending[Any]) -> asyncio.TimerHandle | None:
        if pending.request.deadline is None:
            return None
        left = max(0.0, pending.request.deadline - self._clock())
        return asyncio.get_running_loop().call_later(left, lambda: pending.fail(deadline_exceeded()))

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
            _deliver_output(run, unit, output, self._clock)

    def _out_of_memory(self, run: Run) -> None:
        # On any thread; models are evicted on the event loop.
        if self._loop is None or not call_soon(self._loop, self._start_freeing, run):
            self.device.resume(run, freed=False)

    def _start_freeing(self, run: Run) -> None:
        task = asyncio.create_task(self._free_and_resume(run))
        self._freeing.add(task)
        task.add_done_callback(self._freeing.discard)

    async def _free_and_resume(self, run: Run) -> None:
        freed = False
        try:
            freed = await self._free_memory(run.model.id)
        except Exception:
            log.exception("freeing memory for %s failed", run.model.id)
        finally:
            self.device.resume(run, freed=freed)

    def _lost(self, model: LoadedModel | None) -> None:
        # On any thread; where the loop is gone nobody waits for an answer.
        why = "the device is gone" if model is None else f"the queue of {model.id} was lost"
        if self._loop is not None:
            call_soon(self._loop, self.fail_all, why, model)


def _has_images(request: InferenceRequest) -> bool:
    return any(item.images for item in request.items) or bool(request.query and request.query.images)


def _deliver_output(run: Run, unit: FlightUnit, output: ItemOutput, clock: Callable[[], float]) -> None:
    flight = flight_of(unit)
    collector = flight.assembly
    if flight.settled or collector is None:
        return
    try:
        flight.ran(run.started, run.ended)
        if not collector.deliver(unit.index, output):
            return
        items, usage, truncated = collector.items(), collector.usage(), collector.truncated()
        lora = None if flight.task.lora is None else flight.task.lora.name
        flight.succeed(InferenceReply(items, flight.timing(clock()), usage, truncated, lora))
    except BaseException as error:
        failure = request_error(error, "postprocessing", flight.request.request_id, run.model.id)
        if failure.code == "NON_FINITE_OUTPUT":
            run.model.metrics.non_finite.inc()
        flight.fail(failure)
        del failure  # it and this frame would hold each other, and the request


def _queue_up(flight: Flight, units: Sequence[Unit]) -> list[FlightUnit]:
    # Two LoRA adapters never share a run, whatever keys a family gives.
    deadline, lora = flight.request.deadline, flight.task.lora
    queued = units if lora is None else [replace(unit, key=(lora, unit.key)) for unit in units]
    return [
        FlightUnit(unit, flight, flight.prepared, deadline, index=index, made=made)
        for index, (unit, made) in enumerate(zip(queued, units, strict=True))
    ]
