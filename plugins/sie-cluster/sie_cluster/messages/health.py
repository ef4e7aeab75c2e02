"""The heartbeat of a worker, and what its adapter process tells its sidecar for it.

A heartbeat is a frame whose head names the worker and the status that belongs to it; its first section is the report.
The status, which may have hundreds of models, follows where it is new or was asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

from pydantic import BeforeValidator, Field, FiniteFloat, TypeAdapter
from sie_sdk.wire import pack

from sie_cluster.messages.frames import FrameError, decode, encode, read_as

MOST_REPORTED = 256
"""Models of a report: those that are not merely available."""
MOST_VALUES = 32_768
"""Of a report: a thousand keys that it pulls, and 256 models with their LoRA adapters."""
MOST_BEAT_S = 3600.0


class ModelReport(NamedTuple):
    """One model of a worker; a row on the wire, whose end a newer release may make longer."""

    state: Annotated[str, Field(pattern="^(loaded|loading|unloading|failed)$")]
    memory_bytes: int | None = None
    load_s: FiniteFloat | None = None
    """How long its last load took."""
    loras: tuple[str, ...] = ()
    """LoRA adapters that are loaded."""
    queued_cost: int = 0
    """Of the work that the worker holds for it, in the units of `WorkHead.cost`."""
    held: int = 0
    """Slices of that work."""
    kept: bool = False
    """Whether it is to be there always: pinned or preloaded."""


def _known(row: Any) -> Any:
    return row[: len(ModelReport._fields)] if isinstance(row, list) else row


Models = Mapping[str, Annotated[ModelReport, BeforeValidator(_known)]]
TOLD = "what a worker tells of itself"


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
    models: Models = field(default_factory=dict)
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
    beat_s: Annotated[float, Field(gt=0, le=MOST_BEAT_S)] = 5.0
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
    models: Models = field(default_factory=dict)
    """Those that are not merely available; what is queued for them is not told."""


@dataclass(frozen=True, slots=True)
class Beat:
    """A heartbeat as it came."""

    report: WorkerReport
    status_id: int
    """Tells one status of the worker from another; 0 where its adapter process is away."""
    status: bytes | None
    """The adapter process's status, as `encode_status` wrote it; None where it was not sent along."""


_REPORT, _VITALS = TypeAdapter(WorkerReport), TypeAdapter(Vitals)


def encode_beat(report: WorkerReport, status_id: int = 0, status: bytes | None = None) -> bytes:
    """Write a heartbeat.

    Raises:
        FrameError: A name is beyond all bounds.
    """
    head = {"worker": report.worker, "status": status_id}
    section = pack(_REPORT.dump_python(report, mode="json"))
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
    return Beat(
        read_as(_REPORT, sections[0], TOLD, MOST_VALUES), status_id, bytes(sections[1]) if len(sections) > 1 else None
    )


def encode_vitals(vitals: Vitals) -> bytes:
    """Write vitals."""
    return pack(_VITALS.dump_python(vitals, mode="json"))


def decode_vitals(payload: bytes) -> Vitals:
    """Read vitals.

    Raises:
        FrameError: They are none.
    """
    return read_as(_VITALS, payload, TOLD, MOST_VALUES)
