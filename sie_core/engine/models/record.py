"""One record a model, with an explicit state machine, and the registry of all records.

Used on the event loop alone. `ModelRecord.move` is the only writer of a state.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from sie_core.cache.progress import DownloadProgress
from sie_core.concurrency.tasks import within
from sie_core.contracts import HeldModel, ModelInfo, ModelState, ModelStatus, ResolvedModel
from sie_core.engine.models.load_failure import FailedLoad
from sie_core.engine.models.loaded import LoadedModel
from sie_core.engine.timeouts import DEFAULT_TIMEOUTS, Timeouts
from sie_core.memory.residents import held_model, left_of

# Seconds to add to the monotonic clock for the time of day. Computed once, so that a moment is always shown alike.
STARTED_AT = time.time() - time.monotonic()
# Bounds from below the seconds after which a client is told to come again while a model loads.
LEAST_RETRY_S = 0.1
# A load that imported its family for longer than this predicts nothing for other models: its libraries import more
# later.
LONGEST_IMPORT_S = 0.2


class State(StrEnum):
    """The states of a model in this process."""

    # Not loaded; the next request loads it.
    AVAILABLE = "available"
    # Its weights are being found or downloaded; the device holds nothing of it.
    FETCHING = "fetching"
    # Its weights are here; its load waits for its turn, or for room.
    QUEUED = "queued"
    # Its adapter is being loaded onto the device.
    LOADING = "loading"
    READY = "ready"
    # New requests wait or are refused; the unload begins once its last lease is released.
    DRAINING = "draining"
    # Its adapter is being unloaded.
    UNLOADING = "unloading"
    FAILED = "failed"


# Every legal move. A cancelled load goes back to AVAILABLE; a close unloads from READY without draining.
_EDGES: Mapping[State, frozenset[State]] = {
    State.AVAILABLE: frozenset({State.FETCHING}),
    State.FETCHING: frozenset({State.QUEUED, State.FAILED, State.AVAILABLE}),
    State.QUEUED: frozenset({State.LOADING, State.FAILED, State.AVAILABLE}),
    State.LOADING: frozenset({State.READY, State.FAILED, State.AVAILABLE}),
    State.READY: frozenset({State.DRAINING, State.UNLOADING}),
    State.DRAINING: frozenset({State.READY, State.UNLOADING}),
    State.UNLOADING: frozenset({State.AVAILABLE}),
    State.FAILED: frozenset({State.FETCHING}),
}
# The states in which no load or unload is under way.
RESTING = frozenset({State.AVAILABLE, State.READY, State.FAILED})
ON_THE_WAY = frozenset({State.FETCHING, State.QUEUED, State.LOADING})
_WIRE: Mapping[State, ModelState] = {
    State.AVAILABLE: "available",
    State.READY: "loaded",
    State.FAILED: "failed",
    **dict.fromkeys(ON_THE_WAY, "loading"),
    **dict.fromkeys((State.DRAINING, State.UNLOADING), "unloading"),
}


class Took(NamedTuple):
    """Seconds of a load, without its waits for its turn and for room."""

    fetch: float
    work: float


@dataclass(slots=True, eq=False)
class ModelRecord:
    """One model, or one config of it during a rollout. Times are seconds of the monotonic clock."""

    resolved: ResolvedModel
    pinned: bool = False
    clock: Callable[[], float] = time.monotonic
    timeouts: Timeouts = DEFAULT_TIMEOUTS
    state: State = State.AVAILABLE
    # The load or unload under way; it never raises.
    task: asyncio.Task[None] | None = None
    # Set in READY and DRAINING, and in UNLOADING until the adapter is unloaded.
    loaded: LoadedModel | None = None
    # The last failed load; while READY, the failed load of its changed config.
    failure: FailedLoad | None = None
    # Set while FETCHING.
    download: DownloadProgress | None = None
    # Whether it drains or unloads to make room; requests then have it loaded again.
    evicted: bool = False
    # Whether it serves its model no longer; another record may.
    retired: bool = False
    load_started: float = 0.0
    # When its load was last FETCHING, QUEUED or LOADING.
    stage_started: float = 0.0
    fetch_s: float = 0.0
    # Seconds of the last load that can predict the next one.
    took: Took | None = None
    # Clients that were asked to retry and have not yet; the time until which the last of them is expected.
    told: int = 0
    told_until: float = 0.0
    # Seconds of each finished stage of the last load.
    stages_s: dict[str, float] = field(default_factory=dict)
    loaded_at: float = 0.0
    # Bytes that the last load that succeeded was measured to take.
    memory_bytes: int | None = None
    _last_used: float | None = None
    _rest: asyncio.Event = field(default_factory=asyncio.Event)

    def move(
        self,
        to: State,
        *,
        loaded: LoadedModel | None = None,
        memory_bytes: int | None = None,
        failure: FailedLoad | None = None,
        evict: bool = False,
    ) -> None:
        """Change the state and the fields that belong to it, and wake the waiters in `at_rest`.

        Args:
            to: The new state.
            loaded: With READY after LOADING, the model.
            memory_bytes: With `loaded`, its bytes.
            failure: With FAILED, why.
            evict: With DRAINING, whether the model is evicted to make room.

        Raises:
            RuntimeError: The move is not legal.
        """
        if to not in _EDGES[self.state]:
            raise RuntimeError(f"{self.resolved.id} cannot go from {self.state} to {to}")
        self.state, now = to, self.clock()
        self.download = None
        if to is State.FETCHING:
            self.load_started, self.stages_s = now, {}
            self.download = DownloadProgress(self.timeouts.fetch_s, self.clock)
        elif to is State.QUEUED:
            self.fetch_s = now - self.stage_started
        elif to is State.DRAINING:
            self.evicted, self.told = evict, 0
        elif to is State.READY and loaded is not None:
            self.loaded, self.memory_bytes, self.failure = loaded, memory_bytes, None
            self.loaded_at = now
            # Imports stay, so the next load has none.
            self.took = Took(self.fetch_s, max(0.0, now - self.stage_started - self.import_s))
            self.stages_s["total"] = now - self.load_started
        elif to is State.FAILED:
            self.failure = failure
        self.stage_started = now
        if to in RESTING:
            self.task = None
            self.evicted = False
            self._rest.set()
        else:
            self._rest.clear()

    async def at_rest(self, wait_s: float | None = None) -> bool:
        """Wait until no load or unload is under way; False if one still is after `wait_s` (None: no limit)."""
        return self.state in RESTING or await within(self._rest.wait(), wait_s)

    def give_up_memory(self) -> LoadedModel | None:
        """Take the loaded model out of the record for its unload; keep the time of its last use."""
        self._last_used = self.used_at()
        loaded, self.loaded = self.loaded, None
        return loaded

    def ready(self) -> LoadedModel | None:
        """Return the loaded model if requests may use it."""
        return self.loaded if self.state is State.READY else None

    def remaining_s(self, typical: Took, turn_s: float) -> float:
        """Predict the seconds until the model is loaded.

        Args:
            typical: Expected seconds of a first load.
            turn_s: Until it is its turn, and there is room.
        """
        took, elapsed = self.took or typical, self.clock() - self.stage_started
        if self.state is State.LOADING:
            left_s = left_of(took.work, elapsed)
        elif self.state is State.FETCHING:
            fetch_s = self.download.left_s(elapsed) if self.download is not None else None
            left_s = max(left_of(took.fetch, elapsed) if fetch_s is None else fetch_s, turn_s) + took.work
        else:
            left_s = turn_s + took.work
        return max(LEAST_RETRY_S, left_s)

    @property
    def import_s(self) -> float:
        """Seconds that the last load imported its family for."""
        return self.stages_s.get("import", 0.0)

    def expect_back(self, in_s: float) -> None:
        """Keep the model, once loaded, for a client that was asked to retry in `in_s` seconds."""
        self.told += 1
        self.told_until = max(self.told_until, self.clock() + in_s + self.timeouts.return_s)

    def came_back(self) -> None:
        """Await one client less."""
        self.told = max(0, self.told - 1)

    def used_at(self) -> float | None:
        """Return when the model was last used; None if never."""
        leases = self.loaded.leases if self.loaded is not None else None
        return leases.last_used if leases is not None and leases.served else self._last_used

    def memory_held(self) -> int | None:
        """Return the bytes of the model with its LoRA adapters; if not loaded, those of its last load."""
        if self.memory_bytes is None or self.loaded is None:
            return self.memory_bytes
        return self.memory_bytes + self.loaded.loras.memory_bytes

    def status(self) -> ModelStatus:
        """Describe the record for status reports."""
        loaded = self.loaded
        return ModelStatus(
            id=self.resolved.id,
            state=self.state.value,
            leases=loaded.leases.count if loaded is not None else 0,
            memory_bytes=self.memory_held(),
            pinned=self.pinned,
            loras=loaded.loras.loaded if loaded is not None else (),
            load_s=None if self.took is None else sum(self.took),
            model_state=_WIRE[self.state],
        )

    def described(self, info: ModelInfo) -> ModelInfo:
        """Add the facts of the load to the description of the model."""
        loaded, download, used_at = self.loaded, self.download, self.used_at()
        if loaded is not None:
            info = replace(
                info,
                adapter=loaded.family.id,
                precision=loaded.facts.precision,
                runner=loaded.facts.notes.get("runner"),
                notes=loaded.notes | ({} if loaded.problem is None else {"failing": loaded.problem}),
                loras=tuple(dict.fromkeys((*info.loras, *loaded.loras.loaded))),
            )
        if download is not None:
            info = replace(info, notes={"fetch": download.problem() or download.describe()})
        return replace(
            info,
            state=_WIRE[self.state],
            last_error=self.failure.describe() if self.failure else None,
            memory_bytes=self.memory_held(),
            last_used_at=None if used_at is None else STARTED_AT + used_at,
            load_stages_s=dict(self.stages_s),
            available=info.available or self.memory_bytes is not None,
        )

    def held(self) -> HeldModel | None:
        """Describe the model to a memory manager; None unless it is READY."""
        if (loaded := self.ready()) is None:
            return None
        until = min(self.told_until, self.loaded_at + self.timeouts.longest_return_s) if self.told else 0.0
        what, size, load_s = self.resolved.id, self.memory_bytes or 0, self.stages_s.get("load", 0.0)
        return held_model(what, loaded.leases, size, self.loaded_at, load_s, pinned=self.pinned, kept_until=until)


class Registry:
    """The record that serves each model, the standby records, and retired ones that are not unloaded yet."""

    def __init__(
        self,
        pinned: Iterable[str] = (),
        clock: Callable[[], float] = time.monotonic,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
    ) -> None:
        # Ids of the models that are never evicted: always, and now.
        self._always_pinned = self._pinned = frozenset(pinned)
        self._clock, self._timeouts = clock, timeouts
        self._serving: dict[str, ModelRecord] = {}
        self._others: list[ModelRecord] = []

    def __iter__(self) -> Iterator[ModelRecord]:
        """Go through every record, serving or not."""
        return iter([*self._serving.values(), *self._others])

    def pin(self, models: frozenset[str]) -> None:
        """Evict these no more, and those again that were named before."""
        self._pinned = self._always_pinned | models
        for record in self:
            record.pinned = record.resolved.id in self._pinned

    def serving(self) -> list[ModelRecord]:
        """List the records that serve."""
        return list(self._serving.values())

    def of(self, resolved: ResolvedModel) -> ModelRecord:
        """Return the record that serves a model; create it on first use."""
        if resolved.id not in self._serving:
            self._serving[resolved.id] = self._new(resolved)
        return self._serving[resolved.id]

    def known(self, model: str) -> ModelRecord | None:
        """Return the record that serves a model id; None if no request has named it yet."""
        return self._serving.get(model)

    def status(self) -> list[ModelStatus]:
        """Describe every record, serving ones first."""
        others = [replace(record.status(), serves=False) for record in self._others]
        return [*(record.status() for record in self._serving.values()), *others]

    def described(self, info: ModelInfo) -> ModelInfo:
        """Add this engine's knowledge to the description of a model."""
        record, info = self.known(info.id), replace(info, pinned=info.id in self._pinned)
        return info if record is None else record.described(info)

    def failing(self) -> list[str]:
        """Name the loaded models that fail one request after the other."""
        loaded = [record.loaded for record in self if record.loaded is not None]
        return [f"{model.id}: {model.problem}" for model in loaded if model.problem is not None]

    def standby(self, resolved: ResolvedModel) -> ModelRecord:
        """Create a standby record, which does not serve yet."""
        record = self._new(resolved)
        self._others.append(record)
        return record

    def promote(self, standby: ModelRecord) -> None:
        """Promote a standby record to serving; its model has no other one."""
        self._others.remove(standby)
        self._serving[standby.resolved.id] = standby

    def retire(self, model: str) -> ModelRecord | None:
        """Stop a model's record from serving; return it, or None if there is none."""
        record = self._serving.pop(model, None)
        if record is not None:
            record.retired = True
            self._others.append(record)
        return record

    async def something_leaves(self, wait_s: float, *, unused: bool) -> bool:
        """Wait for an unload under way; False if there is none. `unused` skips models that still drain."""
        states = (State.UNLOADING,) if unused else (State.UNLOADING, State.DRAINING)
        leaving = [record.task for record in self if record.state in states and record.task is not None]
        if leaving:
            await asyncio.wait(leaving, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
        return bool(leaving)

    def forget(self, record: ModelRecord) -> None:
        """Remove a record that does not serve and is not loaded."""
        self._others.remove(record)

    def _new(self, resolved: ResolvedModel) -> ModelRecord:
        return ModelRecord(resolved, resolved.id in self._pinned, self._clock, self._timeouts)
