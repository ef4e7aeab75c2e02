"""The stages of one request: prepare on CPU threads, run on the device, finish and encode on CPU threads.

A request changes threads four times: to a CPU thread, to the device's, to a CPU thread, back to the event loop. On an
idle server, the device's thread does all of a short text.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from sie_core.batching.checked import make_scheduler
from sie_core.concurrency.loop import call_soon
from sie_core.concurrency.pool import CpuPool
from sie_core.concurrency.room import Bounds, Room
from sie_core.concurrency.tasks import Tasks
from sie_core.contracts import (
    DecodeRequest,
    Device,
    InferenceReply,
    InferenceRequest,
    QueueLimits,
    StageStatus,
    Task,
    TokenizeRequest,
)
from sie_core.cpu_budget import cpu_budget
from sie_core.engine.device.batch_run import Run
from sie_core.engine.device.worker import DeviceWorker
from sie_core.engine.models.loaded import LoadedModel
from sie_core.engine.pipeline.slices import Preparing, SlicedFlight, deliver
from sie_core.engine.pipeline.tokenizing import TokenizerTurns, ask_tokenizer
from sie_core.engine.requests.errors import deadline_exceeded, unavailable
from sie_core.engine.requests.inflight import Answer, Pending
from sie_core.engine.requests.traced import trace_request
from sie_core.engine.timeouts import Timeouts
from sie_core.plugins import PluginSet
from sie_core.postprocess.plan import OutputPlan
from sie_core.settings import Settings

log = logging.getLogger(__name__)

# Full batches that may be queued, unless `SIE_MAX_QUEUED_COST` is set.
QUEUED_BATCHES = 64
# CPU threads of a stage, unless set.
MOST_THREADS = 4


class Pipeline:
    """Answers requests to loaded models on one device."""

    _free_memory: Callable[[str], Awaitable[bool]]

    def __init__(
        self,
        device: Device,
        settings: Settings,
        plugins: PluginSet,
        timeouts: Timeouts,
        clock: Callable[[], float],
    ) -> None:
        budget = cpu_budget()
        threads = settings.preprocessor_workers or min(MOST_THREADS, budget.threads)
        image_threads = settings.image_workers or min(MOST_THREADS, budget.threads)
        queued_cost = settings.max_queued_cost or QUEUED_BATCHES * settings.max_batch_cost
        log.debug(
            "device %s (%s), %d threads a CPU stage, %d for images, CPU budget %s",
            device, device.name, threads, image_threads, budget,
        )  # fmt: skip
        # A flood of new requests cannot hold up answers, and no text waits behind the decoding of a picture.
        texts, images = CpuPool("sie-prepare", threads), CpuPool("sie-image", image_threads)
        finishing = CpuPool("sie-finish", threads)
        self._pools = {"prepare": texts, "image": images, "finish": finishing}
        self._tokenizers = TokenizerTurns(clock)
        self._timeouts = timeouts
        self._clock = clock
        self._pending: set[Pending[Any]] = set()
        self._stopped_because: str | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._freeing = Tasks()
        self.device = DeviceWorker(
            device,
            make_scheduler(plugins, settings.scheduler, QueueLimits(queued_cost)),
            finishing,
            deliver,
            self._out_of_memory,
            self._lost,
            stall_s=timeouts.stall_s,
            clock=clock,
        )
        # Multi-slice requests may use half of the queue.
        bounds, queue = Bounds(queued_cost // 4), self.device.queue
        self._texts = Preparing(texts, Room(bounds), queue, clock)
        self._images = Preparing(images, Room(bounds), queue, clock)

    def start(self, free_memory: Callable[[str], Awaitable[bool]]) -> None:
        """Start every thread; called on the event loop.

        Args:
            free_memory: Frees memory for a model, by its id, that ran out of it; returns whether there is more now.
        """
        self._free_memory = free_memory
        self._loop = asyncio.get_running_loop()
        for pool in self._pools.values():
            pool.start()
        self.device.start()

    def stop(self, why: str) -> None:
        """Answer every request with `QUEUE_UNAVAILABLE` from now on; on the event loop, before `close`."""
        # A request admitted earlier may still arrive: it waited for its model, or for a LoRA adapter.
        self._stopped_because = why
        self.fail_all(why)

    def close(self, timeout_s: float) -> bool:
        """Join every thread; False if one still ran after `timeout_s` each."""
        joined = [self.device.close(timeout_s), *(pool.close(timeout_s) for pool in self._pools.values())]
        return all(joined)

    def problem(self) -> str | None:
        """Report what is wrong with the device, or which stage of every request hangs."""
        hung = (each.threads.problem(self._timeouts.stage_s) for each in (self._texts, self._images))
        return self.device.health.problem() or next(filter(None, hung), None)

    def notes(self) -> list[str]:
        """List the hanging threads, even if others work."""
        limit_s = self._timeouts.stall_s
        return [note for each in (self._texts, self._images) if (note := each.threads.note(limit_s))]

    @property
    def queued_cost(self) -> int:
        """Cost units that are queued for the device."""
        return self.device.queue.queued()[1]

    @property
    def all_prepared(self) -> bool:
        """Whether no request waits for a thread of a stage."""
        return not any(pool.waiting for pool in self._pools.values())

    def stages(self) -> dict[str, StageStatus]:
        """Count the waiting and the running work of each stage's threads."""
        return {name: StageStatus(pool.waiting, pool.at_work) for name, pool in self._pools.items()}

    def held(self) -> tuple[int, int]:
        """Return the cost units and the bytes of units that are prepared and have not ended their run."""
        texts, images = self._texts.room.held(), self._images.room.held()
        return texts[0] + images[0], texts[1] + images[1]

    def fail_all(self, why: str) -> None:
        """Answer every request in flight with `QUEUE_UNAVAILABLE`; on the event loop."""
        for pending in list(self._pending):
            pending.fail(unavailable(why))

    async def answer(
        self, request: InferenceRequest, model: LoadedModel, task: Task, plan: OutputPlan, arrived: float
    ) -> InferenceReply:
        """Answer a checked request; cancelling the call, or its deadline, removes its queued units."""
        if self._stopped_because is not None:
            raise unavailable(self._stopped_because)
        preparing = self._images if "image" in model.facts.inputs and _has_images(request) else self._texts
        flight = SlicedFlight(request, model, task, plan, arrived, preparing)
        try:
            flight.begin()
            reply = await self._answered(flight)
        except BaseException:
            flight.close()
            self.device.queue.cancel(flight)
            trace_request(flight, None, self._clock())
            raise
        flight.close()
        trace_request(flight, reply, self._clock())
        model.metrics.answered(request.operation, reply)
        return reply

    async def ask_tokenizer(self, request: TokenizeRequest | DecodeRequest, model: LoadedModel) -> Any:
        """List the tokens of texts, or write the texts of tokens."""
        async with self._tokenizers.turn(request):
            if self._stopped_because is not None:
                raise unavailable(self._stopped_because)
            pending: Pending[Any] = Pending(request, model, model.leases.acquire())
            work = self._texts.threads.submit(ask_tokenizer, pending)
            try:
                return await self._answered(pending)
            finally:
                if self._texts.threads.remove(work):  # it would wait for a thread, and nothing counts it any more
                    pending.lease.release()

    async def _answered(self, pending: Pending[Answer]) -> Answer:
        self._pending.add(pending)
        deadline = pending.request.deadline
        timer = None if deadline is None else self._end_at(deadline, pending)
        try:
            return await pending.future
        finally:
            self._pending.discard(pending)
            if timer is not None:
                timer.cancel()
            if not pending.settled:
                pending.settle()
            pending.forget()

    def _end_at(self, deadline: float, pending: Pending[Any]) -> asyncio.TimerHandle:
        left = max(0.0, deadline - self._clock())
        return asyncio.get_running_loop().call_later(left, lambda: pending.fail(deadline_exceeded()))

    def _out_of_memory(self, run: Run) -> None:
        # Called on any thread; models are evicted on the event loop.
        if self._loop is None or not call_soon(self._loop, lambda: self._freeing.start(self._free_and_resume(run))):
            self.device.resume(run, freed=False)

    async def _free_and_resume(self, run: Run) -> None:
        freed = False
        try:
            freed = await self._free_memory(run.model.id)
        except Exception:
            log.exception("freeing memory for %s failed", run.model.id)
        finally:
            self.device.resume(run, freed=freed)

    def _lost(self, why: str) -> None:
        # Callable from any thread; without a loop nobody waits for an answer.
        if self._loop is not None:
            call_soon(self._loop, self.fail_all, why)


def _has_images(request: InferenceRequest) -> bool:
    return any(item.images for item in request.items) or bool(request.query and request.query.images)
