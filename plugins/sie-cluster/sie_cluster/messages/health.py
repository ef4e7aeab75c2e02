"""The heartbeat of a worker, and what its adapter process tells its sidecar for it.

A heartbeat is a frame whose head names the worker and the status that belongs to it; its first section is the report.
The status, which may have hundreds of models, follows where it is new or was asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from math import isfinite
from types import NoneType
from typing import Any, TypeVar

from sie_sdk.wire import WireError, pack, unpack

from sie_cluster.messages.frames import FrameError, decode, encode

MOST_REPORTED = 256
"""Models of a report: those that are not merely available."""
MOST_VALUES = 32_768
"""Of a report: a thousand keys that it pulls, and 256 models with their LoRA adapters."""
MOST_BEAT_S = 3600.0


@dataclass(frozen=True, slots=True)
class ModelReport:
    """One model of a worker."""

    state: str
    """`loaded`, `loading`, `unloading` or `failed`."""
    memory_bytes: int | None = None
    load_s: float | None = None
    """How long its last load took."""
    loras: tuple[str, ...] = ()
    """LoRA adapters that are loaded."""
    queued_cost: int = 0
    """Of the work that the worker holds for it, in the units of `WorkHead.cost`."""
    held: int = 0
    """Slices of that work."""
    kept: bool = False
    """Whether it is to be there always: pinned or preloaded."""


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """One worker, at one moment."""

    worker: str
    pool: str
    """The queue pool."""
    bundle: str
    resource_pool: str = "default"
    profile: str = "any"
    """Its machine profile, in lower case; `any` where none is set."""
    gpu_type: str | None = None
    gpu_count: int = 0
    up: bool = False
    """Whether it takes work."""
    draining: bool = False
    saturated: bool = False
    """Whether it holds about as much as it takes at a time."""
    held: int = 0
    """Slices that it has taken and not answered."""
    queued_cost: int = 0
    """Their cost, in the units of `WorkHead.cost`."""
    batches: int = 0
    """That wait at its adapter process."""
    cost_per_s: float | None = None
    """The cost that it answers a second while it has more than it can run; None before it ever had."""
    models: Mapping[str, ModelReport] = field(default_factory=dict)
    """Those that are not merely available."""
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    pulled: frozenset[str] = frozenset()
    """The subjects of the keys whose work it pulls."""
    behind: tuple[str, ...] = ()
    """Those of them whose work waits longer than a load takes."""
    config_hash: str | None = None
    """Of the configs that its adapter process serves, as `bundle_config_hash` makes it; None without a config
    service, and before it has any."""
    config_epoch: int | None = None
    """The config service's epoch of these."""
    url: str | None = None
    """Of its adapter process's probes and metrics."""
    beat_s: float = 5.0
    """Seconds between two heartbeats at most."""

    @property
    def news(self) -> tuple[object, ...]:
        """What peers go by at once; the rest is measured anew with each heartbeat."""
        models = {name: (model.state, model.loras) for name, model in self.models.items()}
        state = self.up, self.draining, self.saturated, self.resource_pool
        return *state, self.config_hash, self.config_epoch, models, self.pulled, self.behind


@dataclass(frozen=True, slots=True)
class Vitals:
    """What an adapter process tells of itself beside its status."""

    gpu_type: str | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    url: str | None = None
    models: Mapping[str, ModelReport] = field(default_factory=dict)
    """Those that are not merely available; what is queued for them is not told."""


@dataclass(frozen=True, slots=True)
class Beat:
    """A heartbeat as it came."""

    report: WorkerReport
    status_id: int
    """Tells one status of the worker from another; 0 where its adapter process is away."""
    status: bytes | None
    """The adapter process's status, as `encode_status` wrote it; None where it was not sent along."""


Told = TypeVar("Told", WorkerReport, Vitals)
_STATES = frozenset({"loaded", "loading", "unloading", "failed"})
_TYPES: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys(("worker", "pool", "bundle", "resource_pool", "profile"), (str,)),
    **dict.fromkeys(("gpu_type", "config_hash", "url"), (str, NoneType)),
    **dict.fromkeys(("up", "draining", "saturated", "kept"), (bool,)),
    **dict.fromkeys(("gpu_count", "held", "queued_cost", "batches"), (int,)),
    **dict.fromkeys(("memory_used_bytes", "memory_total_bytes", "memory_bytes", "config_epoch"), (int, NoneType)),
    **dict.fromkeys(("cost_per_s", "load_s"), (int, float, NoneType)),
    **dict.fromkeys(("loras", "pulled", "behind"), (list,)),
    "models": (dict,),
    "beat_s": (int, float),
    "state": (str,),
}
"""The types of the fields on the wire."""
_ROW = tuple(each.name for each in fields(ModelReport))
_NAMES = {kind: tuple(each.name for each in fields(kind)) for kind in (WorkerReport, Vitals)}


def encode_beat(report: WorkerReport, status_id: int = 0, status: bytes | None = None) -> bytes:
    """Write a heartbeat.

    Raises:
        FrameError: A name is beyond all bounds.
    """
    head = {"worker": report.worker, "status": status_id}
    section = pack(_plain(report))
    return encode(head, (section,) if status is None else (section, status))


def decode_beat(frame: bytes) -> Beat:
    """Read a heartbeat.

    Raises:
        FrameError: It is none.
    """
    head, sections = decode(frame)
    status_id = head.get("status")
    if not sections or type(status_id) is not int:
        raise FrameError("a heartbeat has no report, or does not say which status belongs to it")
    report = _read(WorkerReport, _unpacked(sections[0]))
    if not 0 < report.beat_s <= MOST_BEAT_S:
        raise FrameError(f"{report.beat_s} seconds are not between two heartbeats")
    return Beat(report, status_id, bytes(sections[1]) if len(sections) > 1 else None)


def encode_vitals(vitals: Vitals) -> bytes:
    """Write vitals."""
    return pack(_plain(vitals))


def decode_vitals(payload: bytes) -> Vitals:
    """Read vitals.

    Raises:
        FrameError: They are none.
    """
    return _read(Vitals, _unpacked(payload))


def _plain(told: WorkerReport | Vitals) -> dict[str, Any]:
    plain = {name: getattr(told, name) for name in _NAMES[type(told)]}
    if "pulled" in plain:
        plain["pulled"] = list(plain["pulled"])
    return plain | {"models": {name: [getattr(each, key) for key in _ROW] for name, each in told.models.items()}}


def _unpacked(section: bytes | memoryview) -> Any:
    try:
        return unpack(section, most=MOST_VALUES)
    except WireError as error:
        raise FrameError(f"what a worker tells of itself cannot be read: {error}") from None


def _read(kind: type[Told], told: Any) -> Told:
    """Read a report or vitals; fields that a newer release knows are passed over."""
    if not isinstance(told, dict):
        raise FrameError("what a worker tells of itself is no map")
    known = {name: _checked(name, told[name]) for name in _NAMES[kind] if name in told}
    for name, row in known.get("models", {}).items():
        known["models"][name] = _model(row)
    for name, kind_of in (("pulled", frozenset), ("behind", tuple)):
        if name in known:
            known[name] = kind_of(each for each in known[name] if isinstance(each, str))
    try:
        return kind(**known)
    except TypeError as error:
        raise FrameError(f"what a worker tells of itself is not complete: {error}") from None


def _model(row: Any) -> ModelReport:
    if not isinstance(row, list) or len(row) < len(_ROW):
        raise FrameError("what a worker tells of a model is no row")
    told = {name: _checked(name, value) for name, value in zip(_ROW, row, strict=False)}
    if told["state"] not in _STATES or not all(isinstance(each, str) for each in told["loras"]):
        raise FrameError("what a worker tells of a model has no state, or LoRA adapters without names")
    return ModelReport(**told | {"loras": tuple(told["loras"])})


def _checked(name: str, value: Any) -> Any:
    if type(value) not in _TYPES[name]:
        raise FrameError(f"{name} of a worker is a {type(value).__name__}")
    if isinstance(value, float) and not isfinite(value):
        raise FrameError(f"{name} of a worker is {value}")
    return value
