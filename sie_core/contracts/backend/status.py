"""The state that an engine reports: its device, queues, models and loads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Protocol, runtime_checkable

from sie_core.contracts.backend.inference import ModelState
from sie_core.contracts.device.devices import Device, DeviceMemory


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """One requested model, or one config of it: while a changed config is loading, both are reported."""

    id: str
    state: str
    """`available`, `fetching`, `queued`, `loading`, `ready`, `draining`, `unloading` or `failed`."""
    serves: bool = True
    """False for a standby that is being loaded, and for a replaced or removed model that still holds memory."""
    _: KW_ONLY
    leases: int = 0
    """Leases that requests, batches and loads of LoRA adapters hold; it is not unloaded before they are released."""
    memory_bytes: int | None = None
    """Bytes including its LoRA adapters; if it is not loaded, the bytes of its last load.

    None if it was never loaded.
    """
    pinned: bool = False
    loras: Sequence[str] = ()
    """LoRA adapters that are loaded, the least recently used first."""
    load_s: float | None = None
    """Seconds of work of its last successful load, without waits for its turn and for room; None before the first."""
    model_state: ModelState = "available"
    """The state in the words of `ModelInfo`."""


@dataclass(frozen=True, slots=True)
class LoadStatus:
    """One load of a model or LoRA adapter whose weights are at hand."""

    what: str
    """The model's id, or `the LoRA adapter NAME of MODEL`."""
    at_work_s: float | None = None
    """Seconds it has worked on the device; None while it waits for its turn, or for room."""


@dataclass(frozen=True, slots=True)
class StageStatus:
    """The threads of one stage."""

    waiting: int
    """Calls that no thread has taken yet."""
    at_work: int
    """Threads that run a call."""


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """One engine, at one moment."""

    device: Device
    memory: DeviceMemory | None
    """Measured at most about a second ago; None if not measured yet."""
    threshold: float
    """The share of the device's memory, 0 to 1, above which models are evicted."""
    _: KW_ONLY
    in_flight: int = 0
    """Requests admitted and not yet answered."""
    queued: Mapping[str, int] = field(default_factory=dict)
    """Units that wait for the device, by the id of each loaded model."""
    prepared_cost: int = 0
    """Cost units that wait for the device or are on it."""
    prepared_bytes: int = 0
    """Bytes of prepared units, as far as the families report them."""
    models: Sequence[ModelStatus] = ()
    """Models that were never requested may be left out."""
    loads: Sequence[LoadStatus] = ()
    """In order of arrival."""
    stages: Mapping[str, StageStatus] = field(default_factory=dict)
    """The stages with their own threads: `prepare`, `image`, `finish` and `measure`."""


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """One worker behind a gateway, as of its last heartbeat."""

    name: str
    healthy: bool
    """Whether it takes work."""
    bundle: str
    _: KW_ONLY
    queue_depth: int
    """Pieces of work that it has taken and not answered."""
    loaded_models: Sequence[str] = ()
    url: str = ""
    """URL of its probes and metrics; empty if it publishes none."""
    gpu: str = "cpu"
    """Name that clients select by `gpu`: its machine profile; without a profile `any` on a GPU, else `cpu`."""
    gpu_count: int = 0
    ready_gpu_slots: int = 0
    """GPUs that take more work now."""
    saturated: bool = False
    draining: bool = False
    pending_cost: int = 0
    """Cost of accepted, unanswered work, roughly its bytes."""
    inflight_batches: int = 0
    """Batches that wait at its adapter process."""
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    bundle_config_hash: str = ""
    """Hash of the configs that it serves; empty without a config service."""
    pool_name: str = "_default"
    """The queue pool it takes work from."""
    resource_pool: str = "default"
    """The pool it was given to."""


@dataclass(frozen=True, slots=True)
class FleetModel:
    """A model that some worker behind a gateway has, loads or failed to load."""

    name: str
    state: ModelState
    worker_count: int
    _: KW_ONLY
    gpu_types: Sequence[str]
    total_queue_depth: int
    """Pieces of its work that workers have taken and not answered."""


@runtime_checkable
class FleetBackend(Protocol):
    """An `InferenceBackend` whose models run elsewhere."""

    def workers(self) -> Sequence[WorkerInfo]:
        """List the workers that were heard of lately. Called on the event loop."""
        ...

    def held_models(self) -> Sequence[FleetModel]:
        """List the models that are not merely available."""
        ...

    def configured_gpus(self) -> Sequence[str]:
        """List the machine profiles that can be scaled up."""
        ...


@runtime_checkable
class WatchableBackend(Protocol):
    """An `InferenceBackend` with its own device."""

    def status(self) -> EngineStatus:
        """Return the current status. Called on the event loop, often; measures nothing and waits for nothing."""
        ...
