"""The LoRA adapters of one loaded model: loaded at their first request, the least recently used evicted.

Used on the event loop alone.
"""

from __future__ import annotations

import asyncio
import logging
import time
import weakref
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from sie_core.concurrency.leases import Lease, Leases
from sie_core.concurrency.loop import call_soon
from sie_core.concurrency.tasks import within
from sie_core.contracts import InferenceError, InvalidInput, LoadWait, Lora, LoraConfig, ModelLoadError
from sie_core.contracts.errors import OUT_OF_MEMORY, PERMANENT_FAILURES
from sie_core.engine.timeouts import DEFAULT_TIMEOUTS, Timeouts
from sie_core.memory.residents import Resident, held_model

log = logging.getLogger(__name__)

PARAM = "options.lora"
# Bounds on concurrent loads of configured adapters, and of those that clients name: arbitrary ids cannot delay
# configured ones.
LOADS_AT_ONCE = 2
# Bound on the entries of one model, loaded, loading or failed, in addition to the adapters its config declares.
MOST_REMEMBERED = 256


@dataclass(frozen=True, slots=True)
class LoadedLora:
    """A LoRA adapter that was just loaded."""

    lora: Lora
    # Seconds that its load took on the device.
    load_s: float


@dataclass(slots=True, eq=False)
class _Entry:
    """One adapter: `lora` is set once it is loaded, `failure` once its load failed."""

    leases: Leases
    # The load under way; None once it ended or was cancelled.
    task: asyncio.Task[None] | None = None
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    lora: Lora | None = None
    load_s: float = 0.0
    loaded_at: float = 0.0
    failure: InferenceError | None = None
    retry_at: float = 0.0

    def outdated(self, now: float) -> bool:
        """Whether its load failed and may be tried again."""
        return self.failure is not None and now >= self.retry_at


@dataclass(slots=True, eq=False)
class Loras:
    """The adapters of one model."""

    model: str
    # The adapters that the model's config declares.
    declared: Mapping[str, LoraConfig]
    # Number of adapters that stay loaded.
    limit: int
    # Loads the adapter of a name.
    load: Callable[[str], Awaitable[LoadedLora]]
    # Whether clients may name adapters that the config does not declare.
    by_id: bool = True
    timeouts: Timeouts = DEFAULT_TIMEOUTS
    clock: Callable[[], float] = time.monotonic
    _entries: dict[str, _Entry] = field(default_factory=dict)
    _turns: Mapping[bool, asyncio.Semaphore] = field(
        default_factory=lambda: {declared: asyncio.Semaphore(LOADS_AT_ONCE) for declared in (True, False)}
    )

    @property
    def loaded(self) -> tuple[str, ...]:
        """The names of the loaded adapters, the least recently used first."""
        there = [(entry.leases.last_used, name) for name, entry in self._entries.items() if entry.lora is not None]
        return tuple(name for _, name in sorted(there))

    @property
    def memory_bytes(self) -> int:
        """Bytes that the loaded adapters take."""
        return sum(entry.lora.memory_bytes for entry in self._entries.values() if entry.lora is not None)

    def residents(self) -> dict[str, Resident]:
        """Describe the loaded adapters, by an id that is no model's: neither name may contain `#`."""
        found = {}
        for name, entry in self._entries.items():
            if entry.lora is not None:
                size, at = entry.lora.memory_bytes, entry.loaded_at
                until = 0.0 if entry.leases.served else at + self.timeouts.lora_unserved_s
                what = f"{self.model}#{name}"
                held = held_model(what, entry.leases, size, at, entry.load_s, pinned=False, kept_until=until)
                found[held.id] = Resident(held, partial(self.evict, name))
        return found

    async def acquire(self, name: str, wait: LoadWait) -> tuple[Lora, Lease]:
        """Return the adapter `name` with a lease on it, which the caller releases. Starts its load if needed.

        Args:
            name: As the model's config declares it, or the id of a repository.
            wait: How long to wait for its load, whatever the prediction.

        Raises:
            InferenceError: `LORA_LOADING`; `INVALID_INPUT` if it does not exist or does not fit the model;
                `MODEL_LOAD_FAILED` if its weights could not be fetched; `RESOURCE_EXHAUSTED` if there is no room.
        """
        self._require_allowed(name)
        entry = self._entries.get(name)
        if entry is None or entry.outdated(self.clock()):
            entry = self._start(name)
        if entry.task is not None and wait.seconds > 0:
            with wait.place() as may_wait:
                await within(entry.settled.wait(), wait.seconds if may_wait else 0)
        if entry.failure is not None:
            raise _afresh(entry.failure)
        if entry.lora is None:
            what = "is being loaded" if entry.task is not None else "is not loaded"
            raise InferenceError("LORA_LOADING", f"The LoRA adapter {name} of {self.model} {what}.")
        return entry.lora, entry.leases.acquire()

    def cancel_loads(self) -> None:
        """Cancel the loads under way; their requests are asked to retry."""
        for name, entry in list(self._entries.items()):
            if entry.task is not None:
                entry.task.cancel()
                entry.task = None  # a task that is cancelled before it began never runs its `finally`
                entry.settled.set()
                del self._entries[name]

    async def evict(self, name: str, wait_s: float) -> bool:
        """Evict an adapter; return whether it was loaded.

        Requests that hold a lease on it keep it, and its memory; they are waited for `wait_s` seconds.
        """
        entry = self._entries.get(name)
        if entry is None or entry.lora is None:
            return False
        del self._entries[name]
        leases, freed = entry.leases, _freed(entry.lora)
        del entry
        if await leases.idle_within(wait_s):
            await within(freed.wait(), self.timeouts.lora_references_s)
        log.info("%s: LoRA adapter %s evicted for its memory", self.model, name)
        return True

    def _require_allowed(self, name: str) -> None:
        if self.by_id or name in self.declared:
            return
        there = f"those of {self.model} are {', '.join(self.declared)}" if self.declared else "it has none"
        raise InvalidInput(f"{PARAM}: {name} is no declared adapter, and only such are served: {there}.", param=PARAM)

    def _start(self, name: str) -> _Entry:
        self._forget_failures()
        if name not in self.declared and len(self._undeclared()) >= MOST_REMEMBERED:
            raise InferenceError("LORA_LOADING", f"{self.model} is loading other LoRA adapters.")
        entry = self._entries[name] = _Entry(Leases(self.clock))
        entry.task = asyncio.create_task(self._load(name, entry))
        return entry

    async def _load(self, name: str, entry: _Entry) -> None:
        started = self.clock()
        try:
            async with self._turns[name in self.declared]:
                loaded = await self.load(name)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            entry.failure = failure = self._failure(name, error)
            entry.retry_at = self.clock() + (failure.retry_after_s or self.timeouts.lora_failure_s)
        else:
            entry.lora, entry.load_s, entry.loaded_at = loaded.lora, loaded.load_s, self.clock()
            entry.leases = Leases(self.clock)
            self._keep_to_limit(name)
            log.info("%s: LoRA adapter %s loaded in %.2f s", self.model, name, self.clock() - started)
        finally:
            entry.task = None
            entry.settled.set()

    def _keep_to_limit(self, arrived: str) -> None:
        # Evict the least recently used beyond the limit, never the one that just arrived. Spare adapters that their
        # client has not used yet, up to half of the limit: clients that never return must not displace the others.
        now = self.clock()
        others = [name for name in self.loaded if name != arrived]
        awaited = [name for name in others if self._awaited(self._entries[name], now)]
        spared = awaited[-max(1, self.limit // 2) :]
        candidates = [name for name in others if name not in spared] + spared
        for name in candidates[: max(0, len(others) + 1 - self.limit)]:
            del self._entries[name]
            log.info("%s: LoRA adapter %s evicted, %d stay", self.model, name, self.limit)

    def _awaited(self, entry: _Entry, now: float) -> bool:
        # Whether the adapter is still unused, and the client that triggered its load may come back for it.
        return not entry.leases.served and now - entry.loaded_at < self.timeouts.lora_unserved_s

    def _undeclared(self) -> list[str]:
        return [name for name in self._entries if name not in self.declared]

    def _forget_failures(self) -> None:
        # Forget failures that may be retried, and the oldest failures if undeclared adapters have many.
        now = self.clock()
        for name in [name for name, entry in self._entries.items() if entry.outdated(now)]:
            del self._entries[name]
        failed = [name for name in self._undeclared() if self._entries[name].failure is not None]
        for name in failed[: max(0, len(failed) - MOST_REMEMBERED // 2)]:
            del self._entries[name]

    def _failure(self, name: str, error: BaseException) -> InferenceError:
        # Make the client's error: 400 if the adapter itself is at fault, because the client chose it.
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
    # Copy an error that is kept: raising it would add frames to its traceback, and those keep requests alive.
    return InferenceError(
        failure.code, failure.message, param=failure.param, retry_after_s=failure.retry_after_s, details=failure.details
    )


def _freed(held: object) -> asyncio.Event:
    # Make an event that is set once `held` is freed, on any thread.
    loop, freed = asyncio.get_running_loop(), asyncio.Event()
    weakref.finalize(held, call_soon, loop, freed.set).atexit = False
    return freed
