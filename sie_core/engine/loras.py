"""The LoRA adapters of one loaded model: loaded when first asked for, the longest unused let go. Event loop only.

It must not know what an adapter's weights are or how they are applied.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sie_core.cache import HeldWeights, WeightChain
from sie_core.contracts import (
    Adapter,
    InferenceError,
    InvalidInput,
    Lora,
    LoraConfig,
    ModelLoadError,
    OutOfDeviceMemory,
    WeightRequest,
)
from sie_core.contracts.errors import PERMANENT_FAILURES
from sie_core.engine.threads import on_thread

log = logging.getLogger(__name__)

PARAM = "options.lora"
LOADS_AT_ONCE = 2
FAILURE_REMEMBERED_S = 30.0
"""How long a failed load answers at once; nobody can have an unknown one asked for again and again."""
MOST_REMEMBERED = 256
"""Failures and loads under way that are remembered of one model."""

clock = time.monotonic


@dataclass(slots=True)
class _Entry:
    """One adapter, by the state of its load: `lora` once it is there, `failure` once it failed."""

    change: asyncio.Task[None] | None = None
    lora: Lora | None = None
    failure: InferenceError | None = None
    failed_at: float = 0.0


@dataclass(slots=True, eq=False)
class Loras:
    """The adapters of one model.

    Args:
        model: The model's id, for messages.
        declared: Those its config names.
        limit: How many stay loaded.
        load: Finds the weights of one and loads them; called on a thread of its own.
        by_id: Whether others than the declared ones may be asked for.
    """

    model: str
    declared: Mapping[str, LoraConfig]
    limit: int
    load: Callable[[str], Lora]
    by_id: bool = True
    _entries: OrderedDict[str, _Entry] = field(default_factory=OrderedDict)
    _slots: Mapping[bool, asyncio.Semaphore] = field(
        default_factory=lambda: {declared: asyncio.Semaphore(LOADS_AT_ONCE) for declared in (True, False)}
    )
    """Loads at once, of declared adapters and of others: what clients think up cannot hold up what is declared."""

    @property
    def loaded(self) -> tuple[str, ...]:
        """The names of those that are loaded, the longest unused first."""
        return tuple(name for name, entry in self._entries.items() if entry.lora is not None)

    @property
    def memory_bytes(self) -> int:
        """What the loaded ones take."""
        return sum(entry.lora.memory_bytes for entry in self._entries.values() if entry.lora is not None)

    async def get(self, name: str, wait_s: float) -> Lora:
        """Return the adapter `name`; start its load where need be.

        Args:
            name: As the model's config declares it, or the id of a repository.
            wait_s: How long the load may be waited for.

        Raises:
            InferenceError: `LORA_LOADING`; `INVALID_INPUT` where it is not there or does not fit; `MODEL_LOAD_FAILED`
                where its weights could not be had.
        """
        if not self.by_id and name not in self.declared:
            there = f"those of {self.model} are {', '.join(self.declared)}" if self.declared else "it has none"
            raise InvalidInput(
                f"{PARAM}: {name} is no declared adapter, and only such are served: {there}.", param=PARAM
            )
        entry = self._entries.get(name)
        if entry is not None and entry.failure is not None and clock() - entry.failed_at >= FAILURE_REMEMBERED_S:
            entry = None
        if entry is None:
            entry = self._start(name)
        if entry.change is not None:
            if wait_s > 0:
                await asyncio.wait([entry.change], timeout=wait_s)
            if entry.change is not None:
                raise InferenceError("LORA_LOADING", f"The LoRA adapter {name} of {self.model} is being loaded.")
        if entry.failure is not None:
            raise _afresh(entry.failure)
        if entry.lora is None:  # its load was cancelled
            raise InferenceError("LORA_LOADING", f"The LoRA adapter {name} of {self.model} is not loaded.")
        if name in self._entries:
            self._entries.move_to_end(name)
        return entry.lora

    def _start(self, name: str) -> _Entry:
        self._forget_failures()
        if len(self._entries) >= MOST_REMEMBERED:
            raise InferenceError("LORA_LOADING", f"{self.model} is loading other LoRA adapters.")
        entry = self._entries[name] = _Entry()
        entry.change = asyncio.create_task(self._load(name, entry))
        return entry

    async def _load(self, name: str, entry: _Entry) -> None:
        started = clock()
        try:
            async with self._slots[name in self.declared]:
                entry.lora = await on_thread(f"sie-lora-{name}", lambda: self.load(name))
        except asyncio.CancelledError:
            self._entries.pop(name, None)
            raise
        except BaseException as error:
            entry.failure, entry.failed_at = self._failure(name, error), clock()
        else:
            self._evict()
            log.info("%s: LoRA adapter %s loaded in %.2f s", self.model, name, clock() - started)
        finally:
            entry.change = None

    def _evict(self) -> None:
        """Let go of the longest unused beyond the limit; requests that hold one keep it until they are answered."""
        for name in self.loaded[: -self.limit]:
            del self._entries[name]
            log.info("%s: LoRA adapter %s let go, %d stay", self.model, name, self.limit)

    def _forget_failures(self) -> None:
        """Forget those that are old, and the oldest of the others where they are many."""
        failed = [name for name, entry in self._entries.items() if entry.failure is not None]
        surplus = len(failed) - MOST_REMEMBERED // 2
        for place, name in enumerate(failed):
            if place < surplus or clock() - self._entries[name].failed_at >= FAILURE_REMEMBERED_S:
                del self._entries[name]

    def _failure(self, name: str, error: BaseException) -> InferenceError:
        """Tell the client: what is wrong with the adapter itself is a wrong choice of it."""
        if isinstance(error, InferenceError):
            return _afresh(error)
        if isinstance(error, ModelLoadError):
            log.warning("%s: LoRA adapter %s: %s", self.model, name, error)
            if error.failure in PERMANENT_FAILURES or error.failure == "CORRUPT":
                declared = f" Declared ones: {', '.join(self.declared)}." if self.declared else ""
                return InvalidInput(f"{PARAM}: {name} cannot be used with {self.model}: {error}{declared}", param=PARAM)
            message = f"The LoRA adapter {name} of {self.model} could not be loaded: {error}"
            return InferenceError("MODEL_LOAD_FAILED", message, details={"error_class": error.failure})
        if isinstance(error, OutOfDeviceMemory | MemoryError):
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


def lora_loader(adapter: Adapter, declared: Mapping[str, LoraConfig], weights: WeightChain) -> Callable[[str], Lora]:
    """Make what finds the weights of a LoRA adapter, declared or a repository, and has `adapter` load them."""

    def load(name: str) -> Lora:
        with _hold(declared.get(name) or LoraConfig(name), weights) as held:
            return adapter.load_lora(name, held.folder)

    return load


def _hold(config: LoraConfig, weights: WeightChain) -> HeldWeights:
    if config.weights_path is None:
        return weights.hold(WeightRequest(config.hf_id or config.name, config.hf_revision))
    folder = Path(config.weights_path)
    if not folder.is_dir():
        raise ModelLoadError("NOT_FOUND", f"The `weights_path` of {config.name} is not a folder on this machine.")
    return HeldWeights(folder, None)
