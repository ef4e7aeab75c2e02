"""The LoRA adapters of one loaded model: loaded when first asked for, the longest unused let go. Event loop only.

It must not know what an adapter's weights are, how they are loaded or applied, nor who decides what goes for memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from sie_core.concurrency.loop import call_soon
from sie_core.contracts import HeldModel, InferenceError, InvalidInput, Lora, LoraConfig, ModelLoadError
from sie_core.contracts.errors import PERMANENT_FAILURES
from sie_core.engine.models.lease import UseCount
from sie_core.engine.requests.errors import OUT_OF_MEMORY

log = logging.getLogger(__name__)

PARAM = "options.lora"
LOADS_AT_ONCE = 2
FAILURE_REMEMBERED_S = 30.0
"""How long a failed load answers at once; nobody can have an unknown one asked for again and again. One that clients
are told to retry is remembered for as long as they are to wait."""
UNSERVED_S = 10.0
"""How long an adapter stays that nobody used since it was loaded: a client that was told to retry comes back later than
the load ends, and others' adapters, in steady use, would have taken its place by then."""
LAST_HOLDERS_S = 1.0
"""How long the threads that answered the last requests may hold an adapter that is let go."""
MOST_REMEMBERED = 256
"""Adapters of one model that are loaded, being loaded or failed, without those its config declares."""

clock = time.monotonic


@dataclass(frozen=True, slots=True)
class LoadedLora:
    """A LoRA adapter that was just loaded."""

    lora: Lora
    load_s: float
    """Seconds it worked on the device."""


@dataclass(slots=True)
class _Entry:
    """One adapter, by the state of its load: `lora` once it is there, `failure` once it failed."""

    change: asyncio.Task[None] | None = None
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once its load ended or was given up, which ends nothing that is at work already."""
    lora: Lora | None = None
    load_s: float = 0.0
    loaded_at: float = 0.0
    use: UseCount = field(default_factory=UseCount)
    failure: InferenceError | None = None
    failed_at: float = 0.0

    def awaited(self, now: float) -> bool:
        """Whether nobody used it yet, and who had it loaded may still come back for it."""
        return not self.use.entered and now - self.loaded_at < UNSERVED_S

    def outdated(self, now: float) -> bool:
        """Whether it failed, and so long ago that it may be tried again."""
        if self.failure is None:
            return False
        return now - self.failed_at >= (self.failure.retry_after_s or FAILURE_REMEMBERED_S)


@dataclass(slots=True, eq=False)
class Loras:
    """The adapters of one model.

    Args:
        model: The model's id, for messages.
        declared: Those its config names.
        limit: How many stay loaded.
        load: Loads one.
        by_id: Whether others than the declared ones may be asked for.
    """

    model: str
    declared: Mapping[str, LoraConfig]
    limit: int
    load: Callable[[str], Awaitable[LoadedLora]]
    by_id: bool = True
    _entries: dict[str, _Entry] = field(default_factory=dict)
    """In the order in which their loads began."""
    _slots: Mapping[bool, asyncio.Semaphore] = field(
        default_factory=lambda: {declared: asyncio.Semaphore(LOADS_AT_ONCE) for declared in (True, False)}
    )
    """Loads at once, of declared adapters and of others: what clients think up cannot hold up what is declared."""

    @property
    def loaded(self) -> tuple[str, ...]:
        """The names of those that are loaded, the longest unused first."""
        there = [(entry.use.last_used, name) for name, entry in self._entries.items() if entry.lora is not None]
        return tuple(name for _, name in sorted(there))

    @property
    def memory_bytes(self) -> int:
        """What the loaded ones take."""
        return sum(entry.lora.memory_bytes for entry in self._entries.values() if entry.lora is not None)

    def held(self) -> list[HeldModel]:
        """Describe those that are loaded to a memory manager."""
        return [
            HeldModel(
                id=lora_key(self.model, name),
                memory_bytes=entry.lora.memory_bytes,
                loaded_at=entry.loaded_at,
                load_s=entry.load_s,
                last_used=entry.use.last_used,
                uses=entry.use.count,
                served=entry.use.entered,
                pinned=False,
            )
            for name, entry in self._entries.items()
            if entry.lora is not None
        ]

    @asynccontextmanager
    async def use(self, name: str, wait_s: float) -> AsyncIterator[Lora]:
        """Hold the adapter `name`; start its load where need be.

        Args:
            name: As the model's config declares it, or the id of a repository.
            wait_s: How long the load may be waited for.

        Raises:
            InferenceError: `LORA_LOADING`; `INVALID_INPUT` where it is not there or not made for the model;
                `MODEL_LOAD_FAILED` where its weights could not be had; `RESOURCE_EXHAUSTED` where there is no room.
        """
        if not self.by_id and name not in self.declared:
            there = f"those of {self.model} are {', '.join(self.declared)}" if self.declared else "it has none"
            raise InvalidInput(
                f"{PARAM}: {name} is no declared adapter, and only such are served: {there}.", param=PARAM
            )
        entry = self._entries.get(name)
        if entry is None or entry.outdated(clock()):
            entry = self._start(name)
        if entry.change is not None:
            if wait_s > 0:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(entry.settled.wait(), wait_s)
            if entry.change is not None:
                raise InferenceError("LORA_LOADING", f"The LoRA adapter {name} of {self.model} is being loaded.")
        if entry.failure is not None:
            raise _afresh(entry.failure)
        if entry.lora is None:  # its load was given up
            raise InferenceError("LORA_LOADING", f"The LoRA adapter {name} of {self.model} is not loaded.")
        entry.use.enter()
        try:
            yield entry.lora
        finally:
            entry.use.leave()

    def give_up(self) -> None:
        """Stop the loads under way; requests that wait for one are told to retry."""
        for name, entry in list(self._entries.items()):
            if entry.change is not None:
                entry.change.cancel()
                entry.change = None  # a task that never ran does not say so itself
                entry.settled.set()
                del self._entries[name]

    async def let_go(self, name: str, wait_s: float) -> bool:
        """Let an adapter go; requests that hold it keep it until they are answered.

        Args:
            name: The adapter.
            wait_s: How long to wait for those; its memory is there once they are gone.

        Returns:
            Whether there was such a one.
        """
        if name not in self.loaded:
            return False
        entry = self._entries.pop(name)
        use, gone = entry.use, _freed(entry.lora)
        del entry
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await use.unused()
            async with asyncio.timeout(LAST_HOLDERS_S):
                await gone.wait()
        return True

    def _start(self, name: str) -> _Entry:
        self._forget_failures()
        if name not in self.declared and len(self._undeclared()) >= MOST_REMEMBERED:
            raise InferenceError("LORA_LOADING", f"{self.model} is loading other LoRA adapters.")
        entry = self._entries[name] = _Entry()
        entry.change = asyncio.create_task(self._load(name, entry))
        return entry

    async def _load(self, name: str, entry: _Entry) -> None:
        started = clock()
        try:
            async with self._slots[name in self.declared]:
                loaded = await self.load(name)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            entry.failure, entry.failed_at = self._failure(name, error), clock()
        else:
            entry.lora, entry.load_s, entry.loaded_at, entry.use = loaded.lora, loaded.load_s, clock(), UseCount()
            self._keep_to_limit(name)
            log.info("%s: LoRA adapter %s loaded in %.2f s", self.model, name, clock() - started)
        finally:
            entry.change = None
            entry.settled.set()

    def _keep_to_limit(self, arrived: str) -> None:
        """Let go of the longest unused beyond the limit, never of the one that just arrived.

        Requests that hold one keep it until they are answered.
        """
        now = clock()
        others = [name for name in self.loaded if name != arrived]
        awaited = [name for name in others if self._entries[name].awaited(now)]
        # Half the places at most: adapters that are asked for once, and never used, must not displace those in use.
        kept = awaited[-max(1, self.limit // 2) :]
        going = [name for name in others if name not in kept] + kept
        for name in going[: max(0, len(others) + 1 - self.limit)]:
            del self._entries[name]
            log.info("%s: LoRA adapter %s let go, %d stay", self.model, name, self.limit)

    def _undeclared(self) -> list[str]:
        return [name for name in self._entries if name not in self.declared]

    def _forget_failures(self) -> None:
        """Forget those that are old, and the oldest of undeclared adapters where they are many."""
        now = clock()
        for name in [name for name, entry in self._entries.items() if entry.outdated(now)]:
            del self._entries[name]
        failed = [name for name in self._undeclared() if self._entries[name].failure is not None]
        for name in failed[: max(0, len(failed) - MOST_REMEMBERED // 2)]:
            del self._entries[name]

    def _failure(self, name: str, error: BaseException) -> InferenceError:
        """Tell the client: what is wrong with the adapter itself is a wrong choice of it."""
        if isinstance(error, InferenceError):
            return _afresh(error)
        if isinstance(error, ModelLoadError) and error.failure == "OOM":
            message = f"The device has no room for the LoRA adapter {name} of {self.model}: {error}"
            return InferenceError("RESOURCE_EXHAUSTED", message)
        if isinstance(error, ModelLoadError):
            log.warning("%s: LoRA adapter %s: %s", self.model, name, error)
            if error.failure in PERMANENT_FAILURES or error.failure == "CORRUPT":
                declared = f" Declared ones: {', '.join(self.declared)}." if self.declared else ""
                return InvalidInput(f"{PARAM}: {name} cannot be used with {self.model}: {error}{declared}", param=PARAM)
            message = f"The LoRA adapter {name} of {self.model} could not be loaded: {error}"
            return InferenceError("MODEL_LOAD_FAILED", message, details={"error_class": error.failure})
        if isinstance(error, OUT_OF_MEMORY):
            return InferenceError("RESOURCE_EXHAUSTED", f"The device has no room for the LoRA adapter {name}.")
        log.error("%s: loading the LoRA adapter %s failed", self.model, name, exc_info=error)
        message = f"Loading the LoRA adapter {name} of {self.model} failed; the server's log says more."
        return InferenceError("MODEL_LOAD_FAILED", message, details={"error_class": "UNKNOWN"})


def _afresh(failure: InferenceError) -> InferenceError:
    """Make the same error again: one that is kept would keep every request it is raised for, by its traceback."""
    return InferenceError(
        failure.code,
        failure.message,
        param=failure.param,
        retry_after_s=failure.retry_after_s,
        details=failure.details,
    )


def _freed(held: object) -> asyncio.Event:
    """Make an event that is set once `held` is no more, on whatever thread that comes to pass."""
    loop, freed = asyncio.get_running_loop(), asyncio.Event()
    weakref.finalize(held, call_soon, loop, freed.set).atexit = False
    return freed


MARK = "#"
"""Stands in no id of a model or an adapter."""


def lora_key(model: str, name: str) -> str:
    """Name an adapter of a model to a memory manager."""
    return f"{model}{MARK}{name}"


def split_key(key: str) -> tuple[str, str]:
    """Give back the model and the adapter that a memory manager named; no adapter where it named a model."""
    model, _, name = key.partition(MARK)
    return model, name
