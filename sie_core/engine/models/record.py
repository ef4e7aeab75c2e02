"""One record a model, with an explicit state machine, and the registry of all records.

Used on the event loop alone. `ModelRecord.move` is the only writer of a state.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from sie_core.contracts import HeldModel, ModelState, ModelStatus, ResolvedModel
from sie_core.engine.models.download_progress import DownloadProgress
from sie_core.engine.models.load_failure import FailedLoad
from sie_core.engine.models.loaded import LoadedModel
from sie_core.engine.timeouts import DEFAULT_TIMEOUTS, Timeouts

# An overdue load is expected to take this much longer, as a share of its time so far.
OVERDUE_SHARE = 0.25
LEAST_RETRY_S = 1.0


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


# Every legal move. A load that is cancelled goes back to AVAILABLE; a close unloads from READY without draining.
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
    State.FETCHING: "loading",
    State.QUEUED: "loading",
    State.LOADING: "loading",
    State.READY: "loaded",
    State.DRAINING: "unloading",
    State.UNLOADING: "unloading",
    State.FAILED: "failed",
}


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
    # The last failed load; while READY, that of its changed config.
    failure: FailedLoad | None = None
    # Set while FETCHING.
    download: DownloadProgress | None = None
    # Whether it drains or unloads to make room; requests then have it loaded again.
    evicted: bool = False
    # Whether it serves its model no longer; another record may.
    retired: bool = False
    load_started: float = 0.0
    # Seconds of the last load that succeeded.
    load_s: float | None = None
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
        """Change the state and the fields that belong to it, and wake those who wait in `at_rest`.

        Args:
            to: The new state.
            loaded: With READY after LOADING, the model.
            memory_bytes: With `loaded`, what it takes.
            failure: With FAILED, why.
            evict: With DRAINING, whether the model is evicted to make room.

        Raises:
            RuntimeError: The move is not legal.
        """
        if to not in _EDGES[self.state]:
            raise RuntimeError(f"{self.resolved.id} cannot go from {self.state} to {to}")
        self.state = to
        self.download = None
        if to is State.FETCHING:
            self.load_started, self.stages_s = self.clock(), {}
            self.download = DownloadProgress(self.timeouts.fetch_s, self.clock)
        elif to is State.DRAINING:
            self.evicted = evict
        elif to is State.READY and loaded is not None:
            self.loaded, self.memory_bytes, self.failure = loaded, memory_bytes, None
            self.loaded_at = self.clock()
            self.load_s = self.stages_s["total"] = self.loaded_at - self.load_started
        elif to is State.FAILED:
            self.failure = failure
        if to in RESTING:
            self.task = None
            self.evicted = False
            self._rest.set()
        else:
            self._rest.clear()

    async def at_rest(self, wait_s: float | None = None) -> bool:
        """Wait until no load or unload is under way; False where one still is after `wait_s` (None: no limit)."""
        if self.state in RESTING:
            return True
        try:
            async with asyncio.timeout(wait_s):
                await self._rest.wait()
        except TimeoutError:
            return False
        return True

    def give_up_memory(self) -> LoadedModel | None:
        """Take the loaded model out of the record for its unload; keep the time of its last use."""
        self._last_used = self.used_at()
        loaded, self.loaded = self.loaded, None
        return loaded

    @property
    def wire_state(self) -> ModelState:
        """The state as `/v1/models` names it."""
        return _WIRE[self.state]

    def ready(self) -> LoadedModel | None:
        """Return the loaded model where requests may use it."""
        return self.loaded if self.state is State.READY else None

    def remaining_s(self, estimate: float) -> float:
        """Estimate how many seconds the load under way still takes; `estimate` is the total of a first load."""
        elapsed = self.clock() - self.load_started
        expected = estimate if self.load_s is None else self.load_s
        return max(LEAST_RETRY_S, max(expected, elapsed * (1 + OVERDUE_SHARE)) - elapsed)

    def used_at(self) -> float | None:
        """Return when the model was last used; None where it never was."""
        leases = self.loaded.leases if self.loaded is not None else None
        return leases.last_used if leases is not None and leases.served else self._last_used

    def memory_held(self) -> int | None:
        """Return the bytes of the model and its LoRA adapters; where it is not loaded, those of its last load alone."""
        if self.memory_bytes is None or self.loaded is None:
            return self.memory_bytes
        return self.memory_bytes + self.loaded.loras.memory_bytes

    def status(self) -> ModelStatus:
        """Describe the record to who watches the engine."""
        loaded = self.loaded
        return ModelStatus(
            id=self.resolved.id,
            state=self.state.value,
            leases=loaded.leases.count if loaded is not None else 0,
            memory_bytes=self.memory_held(),
            pinned=self.pinned,
            loras=loaded.loras.loaded if loaded is not None else (),
        )

    def held(self) -> HeldModel | None:
        """Describe the model to a memory manager; None where it is not READY."""
        if (loaded := self.ready()) is None:
            return None
        return HeldModel(
            id=self.resolved.id,
            memory_bytes=self.memory_bytes or 0,
            loaded_at=self.loaded_at,
            load_s=self.stages_s.get("load", 0.0),
            last_used=loaded.leases.last_used,
            uses=loaded.leases.count,
            served=loaded.leases.served,
            pinned=self.pinned,
        )


class Registry:
    """The record that serves each model, the standby records, and retired ones that are not unloaded yet.

    Args:
        pinned: Ids of the models that stay loaded.
        clock: Monotonic seconds.
        timeouts: Those of its records.
    """

    def __init__(
        self,
        pinned: Container[str] = (),
        clock: Callable[[], float] = time.monotonic,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
    ) -> None:
        self._pinned = pinned
        self._clock = clock
        self._timeouts = timeouts
        self._serving: dict[str, ModelRecord] = {}
        self._others: list[ModelRecord] = []

    def __iter__(self) -> Iterator[ModelRecord]:
        """Go through every record, serving or not."""
        return iter([*self._serving.values(), *self._others])

    def serving(self) -> list[ModelRecord]:
        """List the records that serve."""
        return list(self._serving.values())

    def of(self, resolved: ResolvedModel) -> ModelRecord:
        """Return the record that serves a model; create it on first use."""
        found = self._serving.get(resolved.id)
        if found is None:
            found = self._serving[resolved.id] = self._new(resolved)
        return found

    def known(self, model: str) -> ModelRecord | None:
        """Return the record that serves the model of an id; None where no request has named it yet."""
        return self._serving.get(model)

    def status(self) -> list[ModelStatus]:
        """Describe every record, those that serve first."""
        others = [replace(record.status(), serves=False) for record in self._others]
        return [*(record.status() for record in self._serving.values()), *others]

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
        """Stop a model's record from serving; return it, or None where there is none."""
        record = self._serving.pop(model, None)
        if record is not None:
            record.retired = True
            self._others.append(record)
        return record

    def leaving(self, *, unused: bool) -> list[asyncio.Task[None]]:
        """List the unloads under way; `unused` leaves out those of models that still drain."""
        states = (State.UNLOADING,) if unused else (State.UNLOADING, State.DRAINING)
        return [record.task for record in self if record.state in states and record.task is not None]

    def forget(self, record: ModelRecord) -> None:
        """Remove a record that does not serve and is not loaded."""
        self._others.remove(record)

    def _new(self, resolved: ResolvedModel) -> ModelRecord:
        return ModelRecord(resolved, resolved.id in self._pinned, self._clock, self._timeouts)
