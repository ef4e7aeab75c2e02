"""Twenty-four models through thousands of random steps, in virtual time: loads, evictions, config changes, failures."""

from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sie_core.contracts import InferenceError, LoadWait, ModelLoadError, OutOfDeviceMemory
from sie_core.engine.models.record import RESTING, State
from tests.engine.virtual_time import VirtualTimeLoop
from tests.engine.world import MB, NAMES, SIZE, World

MODELS = 24
STEPS = 1000
LONGEST_RUN_S = 50_000.0
"""Virtual seconds."""
EXPECTED = {
    "MODEL_LOADING",
    "MODEL_NOT_LOADED",
    "MODEL_LOAD_FAILED",
    "MODEL_NOT_FOUND",
    "LORA_LOADING",
    "RESOURCE_EXHAUSTED",
    "QUEUE_UNAVAILABLE",
}


class RandomWorld(World):
    """A world whose times and sizes are random, and the steps through it."""

    def __init__(self, loop: VirtualTimeLoop, seed: int) -> None:
        self.random = random.Random(seed)
        self.answered = self.asked = 0
        sizes = {f"m{number}": self.random.randrange(10, 400) * MB for number in range(MODELS)}
        super().__init__(loop, sizes, pinned=frozenset({"m0"}), idle_s=300.0)

    def fetch_s(self) -> float:
        return self.random.choice((0.0, 0.1, 5.0))

    def load_s(self) -> float:
        return self.random.choice((0.0, 0.5, 3.0))

    def unload_s(self) -> float:
        return self.random.random()

    def lora_s(self) -> float:
        return self.random.random()

    def wait(self) -> LoadWait:
        return self.random.choice((LoadWait(), LoadWait(2.0, if_soon=True), LoadWait(2.0), LoadWait(500.0)))

    async def request(self, number: int) -> None:
        """Ask for a model, perhaps with an adapter, and use it for a while."""
        self.asked += 1
        try:
            resolved = self.catalog.resolve(f"m{number}")
            model, lease = await self.lifecycle.acquire(resolved, self.wait())
            with lease:
                assert model in self.queues.served
                if self.random.random() < 0.3:
                    _, held = await model.loras.acquire(
                        self.random.choice(NAMES), LoadWait(self.random.choice((0.0, 100.0)))
                    )
                    with held:
                        await asyncio.sleep(self.random.random())
                await asyncio.sleep(self.random.choice((0.0, 0.2, 10.0)))
                assert model in self.queues.served, "a model was unloaded under a request"
        except InferenceError as error:
            self.expect(error)
        self.answered += 1

    @staticmethod
    def expect(error: InferenceError) -> None:
        assert error.code in EXPECTED, error

    async def load_now(self, number: int) -> None:
        try:
            await self.lifecycle.load(self.catalog.resolve(f"m{number}"))
        except InferenceError as error:
            self.expect(error)

    async def unload_now(self, number: int) -> None:
        try:
            await self.lifecycle.unload(self.catalog.resolve(f"m{number}"), self.random.choice((0.0, 20.0)))
        except InferenceError as error:
            self.expect(error)

    def change_configs(self) -> None:
        name = f"m{self.random.randrange(MODELS)}"
        if name in self.version and self.random.random() < 0.4:
            del self.version[name]
        else:
            self.version[name] = self.random.randrange(1_000_000)
        before, self.catalog = self.catalog, self.snapshot(self.catalog.epoch + 1)
        self.rollout.follow(before, self.catalog)

    def break_something(self) -> None:
        error = self.random.choice(
            (ModelLoadError("NETWORK", "cut"), ModelLoadError("CONFIG", "odd"), OutOfDeviceMemory(), ValueError("bug"))
        )
        self.failures[f"m{self.random.randrange(MODELS)} {self.random.choice(('fetch', 'load'))}"] = error

    def check(self) -> None:
        for record in self.registry:
            assert (record.loaded is not None) <= (record.state in (State.READY, State.DRAINING, State.UNLOADING))
            assert (record.state is State.READY) <= (record.loaded in self.queues.served)
            assert (record.task is None) == (record.state in RESTING)
        serving = [record.resolved.id for record in self.registry.serving()]
        assert len(serving) == len(set(serving))
        assert 0 <= self.device.held() <= SIZE

    async def run(self, steps: int) -> None:
        await self.residency.start()
        tasks: set[asyncio.Task[None]] = set()
        acts = (self.request,) * 12 + (self.load_now, self.unload_now)
        for _ in range(steps):
            chance = self.random.random()
            if chance < 0.85:
                number = min(MODELS - 1, int(self.random.expovariate(0.2)))
                tasks.add(asyncio.create_task(self.random.choice(acts)(number)))
            elif chance < 0.90:
                self.change_configs()
            elif chance < 0.95:
                self.break_something()
            else:
                self.device.elsewhere = self.random.choice((0, 0, 100 * MB, 900 * MB))
            await asyncio.sleep(self.random.choice((0.0, 0.0, 0.05, 1.0, 20.0)))
            self.check()
            for task in [task for task in tasks if task.done()]:
                task.result()
                tasks.discard(task)
        if self.random.random() < 0.5:  # else it is closed with everything under way
            await asyncio.gather(*tasks)
        closing = asyncio.create_task(self.close())
        await asyncio.gather(*tasks, closing)
        assert self.answered == self.asked
        for _ in range(100):  # loads that a close cancelled while they worked end by themselves
            await asyncio.sleep(1.0 if self.device.held() else 0.0)
        assert self.device.held() == 0
        assert {record.state for record in self.registry} <= RESTING
        assert [record for record in self.registry if record.loaded is not None] == []


@settings(max_examples=10, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32))
@pytest.mark.timeout(300)
def test_ten_thousand_random_steps_are_legal_leak_nothing_and_answer_everybody(seed: int) -> None:
    loop = VirtualTimeLoop()
    broken: list[object] = []
    loop.set_exception_handler(lambda _, context: broken.append(context))
    try:
        loop.run_until_complete(asyncio.wait_for(RandomWorld(loop, seed).run(STEPS), LONGEST_RUN_S))
    finally:
        loop.close()
    assert broken == []
