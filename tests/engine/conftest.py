"""Engines over fake models that the test describes; every wait is bounded."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from sie_fake.record import RECORD
from sie_sdk.wire import unpack

from sie_core.batching import scheduler
from sie_core.contracts import InferenceReply, InferenceRequest, Item, LoadWait, ModelStatus
from sie_core.defaults import BUILTINS
from sie_core.engine import Engine, build_engine
from sie_core.engine.timeouts import DEFAULT_TIMEOUTS, Timeouts
from sie_core.memory import LeastRecentlyUsed
from sie_core.plugins import PluginSet, discover
from sie_core.settings import Settings, load_settings

BOUND_S = 30.0
ENCODE: Mapping[str, Any] = {
    "encode": {"dense": {"dim": 8, "matryoshka_dims": [4, 8]}, "sparse": {"dim": 100}, "multivector": {"dim": 4}}
}
HURRIED = partial(LeastRecentlyUsed, longest_stay_s=0.0)
_numbers = itertools.count()


async def until(condition: Callable[[], object]) -> None:
    """Wait until `condition` holds."""
    async with asyncio.timeout(BOUND_S):
        while not condition():  # noqa: ASYNC110 - what is waited for happens on threads that set no event
            await asyncio.sleep(0.002)


async def idle(engine: Engine) -> None:
    """Wait until no model or LoRA adapter is in use: the thread that answered gives it back a moment later."""

    def uses() -> Iterator[int]:
        for record in engine.registry.serving():
            if (held := record.held()) is not None and (loaded := record.ready()) is not None:
                yield held.uses
                yield from (each.held.uses for each in loaded.loras.residents().values())

    await until(lambda: not any(uses()))


async def bounded(awaitable: Awaitable[Any]) -> Any:
    """Await something that must not take long."""
    return await asyncio.wait_for(awaitable, BOUND_S)


def request(model: str, *texts: str, **fields: Any) -> InferenceRequest:
    """Make a request that waits for the model's load."""
    fields = {"load_wait": LoadWait(fields.pop("load_wait_s", BOUND_S)), **fields}
    items = fields.pop("items", None) or [Item(text=text) for text in texts]
    return InferenceRequest(model, "encode", items, request_id=f"r{next(_numbers)}", **fields)


def vectors(reply: InferenceReply) -> list[np.ndarray]:
    """Unpack the dense vectors of a reply."""
    return [unpack(item)["dense"]["values"] for item in reply.items]


def queued(engine: Engine) -> int:
    """Count the units that wait for the device, as `/metrics` tells it."""
    return int(engine.metrics.registry.get_sample_value("sie_queue_units"))


def sample(engine: Engine, name: str, **labels: str) -> float:
    """Read one metric; 0 where it was never counted."""
    return engine.metrics.registry.get_sample_value(name, labels) or 0.0


def told(engine: Engine, model: str) -> ModelStatus:
    """Return the status of the model that serves."""
    (found,) = [each for each in engine.status().models if each.serves and each.id == model]
    return found


def held(engine: Engine) -> list[str]:
    """List the ids of everything the engine keeps of models, serving or not."""
    return [each.id for each in engine.status().models]


def loads_at_work(engine: Engine) -> int:
    """Count the loads that work on the device."""
    return sum(load.at_work_s is not None for load in engine.status().loads)


def loads_waiting(engine: Engine) -> int:
    """Count the loads that wait for their turn, or for room."""
    return len(engine.status().loads) - loads_at_work(engine)


@dataclass
class Clock:
    """The monotonic clock, set ahead by the test."""

    ahead_s: float = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead_s


@dataclass
class Hold:
    """A file that holds the fakes that name it, until the test lets go."""

    file: Path

    def __str__(self) -> str:
        return str(self.file)

    def on(self) -> None:
        self.file.touch()

    def off(self) -> None:
        self.file.unlink(missing_ok=True)


@dataclass
class Engines:
    """Makes engines over fakes."""

    folder: Path
    made: list[Engine] = field(default_factory=list)
    holds: list[Hold] = field(default_factory=list)
    hurried: bool = False
    """Whether models may go at once, and need not stay for a while after their load."""
    others: frozenset[threading.Thread] = field(default_factory=lambda: frozenset(threading.enumerate()))
    """Threads that were there before: of engines that other tests share, too."""

    def threads(self, name: str = "") -> list[threading.Thread]:
        """List the threads of these engines whose names begin so."""
        return [each for each in threading.enumerate() if each not in self.others and each.name.startswith(name)]

    def hold(self) -> Hold:
        """Make a hold that is on."""
        hold = Hold(self.folder / f"hold{len(self.holds)}")
        hold.on()
        self.holds.append(hold)
        return hold

    def model(
        self,
        name: str,
        *,
        adapter: str = "fake",
        max_batch_tokens: int = 16384,
        tasks: Mapping[str, Any] = ENCODE,
        inputs: Sequence[str] = ("text",),
        loras: Mapping[str, int] = {},
        **options: Any,
    ) -> str:
        """Write the config of a fake; `options` are those of its `loadtime`, `runtime` is a mapping among them.

        `loras` are LoRA adapters with the bytes each takes.
        """
        runtime = options.pop("runtime", {})
        (self.folder / f"{name}.yaml").write_text(
            yaml.safe_dump(
                {
                    "sie_id": f"test/{name}",
                    "package_backed": True,
                    "inputs": dict.fromkeys(inputs, True),
                    "tasks": dict(tasks),
                    "max_sequence_length": 512,
                    "loras": {each: {"weights_path": self.lora(name, each, size)} for each, size in loras.items()},
                    "profiles": {
                        "default": {
                            "adapter_path": adapter,
                            "max_batch_tokens": max_batch_tokens,
                            "adapter_options": {"loadtime": options, "runtime": runtime},
                        }
                    },
                }
            )
        )
        return f"test/{name}"

    def lora(self, model: str, name: str, size: int) -> str:
        """Write the files of a LoRA adapter that claim `size` bytes and take none of the disk."""
        folder = self.folder / "loras" / model / name
        folder.mkdir(parents=True)
        header = json.dumps({"w": {"dtype": "F32", "shape": [size // 4], "data_offsets": [0, size]}}).encode()
        with (folder / "adapter_model.safetensors").open("wb") as file:
            file.write(len(header).to_bytes(8, "little") + header)
            file.truncate(size)
        return str(folder)

    async def start(
        self,
        change: Callable[[PluginSet], PluginSet] = lambda plugins: plugins,
        *,
        load: Sequence[str] = (),
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
        clock: Callable[[], float] = time.monotonic,
        **settings: Any,
    ) -> Engine:
        """Make an engine over the models written so far, start it and load some of them."""
        engine = self.make(change, timeouts=timeouts, clock=clock, **settings)
        await bounded(engine.start())
        for model in load:
            await bounded(engine.load(model))
        RECORD.clear()
        return engine

    def make(
        self,
        change: Callable[[PluginSet], PluginSet] = lambda plugins: plugins,
        *,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
        clock: Callable[[], float] = time.monotonic,
        **settings: Any,
    ) -> Engine:
        """Make an engine that is not started."""
        read = self.settings(**settings)
        plugins = change(discover(read, BUILTINS))
        if self.hurried:
            plugins = replace(plugins, memory_managers={"lru": HURRIED})
        # A run that a test holds teaches the scheduler that runs are slow, and a model's first would be a single unit.
        engine = build_engine(read, plugins, timeouts=replace(timeouts, cpu_batch_s=None), clock=clock)
        self.made.append(engine)
        return engine

    def settings(self, **settings: Any) -> Settings:
        """Read the settings with nothing of the developer's machine in them."""
        defaults: Mapping[str, Any] = {
            "models_dir": self.folder,
            "local_cache": self.folder / "cache",
            "hf_fallback": False,
            "device": "cpu",
            "preprocessor_workers": 2,
        }
        return load_settings(**{**defaults, **settings})


@pytest.fixture
async def engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Engines]:
    """Engines that are closed with the test; what they hold is let go first."""
    for name in ("SIE_DEVICE", "SIE_PLUGINS", "SIE_PRELOAD_MODELS"):
        monkeypatch.delenv(name, raising=False)
    for name in ("SHARED_S", "PREEMPTIBLE_S"):  # as for `cpu_batch_s`
        monkeypatch.setattr(scheduler, name, inf)
    made = Engines(tmp_path)
    yield made
    for hold in made.holds:
        hold.off()
    for engine in made.made:
        await bounded(engine.close())


@pytest.fixture
def hurried(engines: Engines) -> None:
    """Models need not stay for a while, however slow the machine is to load them."""
    engines.hurried = True
