"""One random interleaving from its seed, and what must hold at its end."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

from sie_sdk import wire

from sie_core.concurrency.room import Bounds, Room
from sie_core.contracts import (
    InferenceError,
    InferenceReply,
    InferenceRequest,
    Item,
    ItemOutput,
    OutOfDeviceMemory,
    Task,
)
from sie_core.engine.device.batch_run import Run, after_failure, after_freeing
from sie_core.engine.pipeline.slices import Preparing, SlicedFlight, deliver
from sie_core.engine.requests.errors import request_error
from sie_core.postprocess import OUTPUT_DTYPES
from sie_core.postprocess.plan import OutputPlan
from tests.engine.interleaved.parts import BATCH_COST, Loop, Queue, Threads, model

TASK, PLAN = Task("score"), OutputPlan(OUTPUT_DTYPES[0])
MOST_STEPS = 10_000
GIVEN_UP = object()


class Scenario:
    """A few requests, taken through the engine by steps in random order."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.loop, self.threads, self.model = Loop(), Threads(), model()
        self.queue = Queue(self.random, self.model)
        self.queue.refuses = self.random.choice((0.0, 0.0, 0.1))
        self.room = Room(Bounds(sliced_cost=3 * BATCH_COST))
        self.time = 0.0
        self.preparing = Preparing(self.threads, self.room, self.queue, self._clock)  # type: ignore[arg-type]
        self.on_device: list[tuple[Run, str]] = []
        self.aside: list[Run] = []
        self.flights: list[SlicedFlight] = []
        self.futures: list[Any] = []
        self.answered: dict[int, Any] = {}
        self.faults = self.random.choice((0.0, 0.0, 0.1, 0.4))

    def run(self) -> None:
        """Do every step there is, then check."""
        asyncio._set_running_loop(self.loop)  # type: ignore[arg-type]
        try:
            for number in range(self.random.randint(1, 3)):
                self._ask(number)
            for _ in range(MOST_STEPS):
                if not self._step():
                    break
            else:
                raise AssertionError("it does not come to an end")
        finally:
            asyncio._set_running_loop(None)
        self._check()

    def _clock(self) -> float:
        self.time += self.random.choice((0.0, 0.001, 0.03))
        return self.time

    def _ask(self, number: int) -> None:
        random = self.random
        items = []
        for place in range(random.choice((1, 1, 2, 3, 4, 5, 6))):
            units: list[Any] = [
                {"cost": random.randint(1, 5), "tokens": random.randint(1, 9), "number": 1000 * place + part + 1}
                for part in range(random.choice((1, 1, 1, 2, 3)))
            ]
            for unit in units:
                unit["crashes"] = random.random() < 0.03
                unit["too_large"] = random.random() < 0.02
            if random.random() < 0.01:
                units.append("refused")
            items.append(Item(id=str(place), text="text", metadata={"units": units}))
        request = InferenceRequest("m", "score", items, request_id=f"r{number}")
        flight = SlicedFlight(request, self.model, TASK, PLAN, 0.0, self.preparing)
        self.flights.append(flight)
        self.futures.append(flight.future)
        flight.begin()

    def _step(self) -> bool:
        choices = [
            *([self._prepare] * 3 if self.threads.waiting else ()),
            *([self._prepare_on_device] if self.queue.calls else ()),
            *([self._launch] * 2 if self.queue.units else ()),
            *([self._finish] * 2 if self.on_device else ()),
            *([self._resume] if self.aside else ()),
            *([self._tell] * 2 if self.loop.calls else ()),
        ]
        if not choices:
            return False
        if self.random.random() < 0.03:
            self._give_up(self.random.randrange(len(self.flights)))
        else:
            self.random.choice(choices)()
        return True

    def _prepare(self) -> None:
        work = self.threads.waiting.pop(self.random.randrange(len(self.threads.waiting)))
        work.call(*work.arguments)

    def _prepare_on_device(self) -> None:
        self.queue.calls.pop()()

    def _launch(self) -> None:
        self._put_on(self.queue.take())

    def _put_on(self, run: Run) -> None:
        if run.leave_out_settled():
            self.on_device.append((run, "ok" if self.random.random() >= self.faults else "short"))
        else:
            self._end(run)

    def _finish(self) -> None:
        run, fate = self.on_device.pop(self.random.randrange(len(self.on_device)))
        payloads = [unit.made.payload for unit in run.units]
        alone = len(run.units) == 1
        if any(each["crashes"] for each in payloads):
            self._failed(run, ValueError("crash"))
        elif any(each["too_large"] for each in payloads) or (fate == "short" and not alone):
            self._failed(run, OutOfDeviceMemory())
        else:
            deliver(run, [ItemOutput(score=float(each["number"])) for each in payloads])
            self._end(run)

    def _failed(self, run: Run, error: Exception) -> None:
        # As the device's worker does.
        tried = len(run.units)
        if run.leave_out_settled():
            parts = after_failure(run, error, tried)
            if parts is None:
                self.aside.append(run)
                return
            if parts:
                self._again(parts)
            else:
                (flight,) = run.flights()
                flight.fail(request_error(error, "run", "r", "m") if not isinstance(error, ValueError) else CRASHED)
                self.queue.cancel(flight)
        self._end(run)

    def _again(self, parts: Any) -> None:
        for part in parts:
            part.lease = self.model.leases.acquire()
            self._put_on(part)

    def _resume(self) -> None:
        run = self.aside.pop(self.random.randrange(len(self.aside)))
        if run.leave_out_settled():
            self._again(after_freeing(run, freed=self.random.random() < 0.5))
        self._end(run)

    def _end(self, run: Run) -> None:
        assert run.lease is not None
        run.lease.release()

    def _tell(self) -> None:
        call, arguments = self.loop.calls.pop(0)
        call(*arguments)
        for number, future in enumerate(self.futures):
            if number not in self.answered and future.answers:
                self._leave(number, future.answers[0])

    def _give_up(self, number: int) -> None:
        # The client leaves, or its deadline passes.
        if number not in self.answered:
            self._leave(number, GIVEN_UP)

    def _leave(self, number: int, answer: Any) -> None:
        # As the pipeline does once its wait ends.
        self.answered[number] = answer
        flight = self.flights[number]
        flight.settle()
        flight.close()
        if not isinstance(answer, InferenceReply):
            self.queue.cancel(flight)

    def _check(self) -> None:
        assert sorted(self.answered) == list(range(len(self.flights))), "a request was not answered"
        for number, (flight, future) in enumerate(zip(self.flights, self.futures, strict=True)):
            assert len(future.answers) <= 1, "answered twice"
            self._check_answer(flight, self.answered[number])
        assert self.room.held() == (0, 0), "units are counted as held"
        assert self.model.leases.count == 0, "a lease is held"
        assert not self.threads.waiting
        assert not self.queue.calls
        assert not self.queue.units

    def _check_answer(self, flight: SlicedFlight, answer: Any) -> None:
        units = [item.metadata["units"] for item in flight.request.items]  # type: ignore[index]
        flat = [unit for each in units for unit in each]
        if isinstance(answer, InferenceReply):
            read = [wire.unpack(item) for item in answer.items]
            expected = [
                {"item_id": str(place), "score": float(sum(unit["number"] for unit in each))}
                for place, each in enumerate(units)
            ]
            assert read == expected
            assert answer.usage.input_tokens == sum(unit["tokens"] for unit in flat)
            assert not any(unit["crashes"] or unit["too_large"] for unit in flat)
        elif answer is not GIVEN_UP:
            assert isinstance(answer, InferenceError)
            why = {
                "QUEUE_FULL": self.queue.refuses > 0,
                "INVALID_INPUT": "refused" in flat,
                "INFERENCE_ERROR": any(unit != "refused" and unit["crashes"] for unit in flat),
                "RESOURCE_EXHAUSTED": any(unit != "refused" and unit["too_large"] for unit in flat),
            }
            assert why[answer.code], answer


CRASHED = InferenceError("INFERENCE_ERROR", "crashed")
