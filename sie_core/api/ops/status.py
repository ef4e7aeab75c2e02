"""`/ws/status`: the state of a server or of a worker, sent five times a second over a WebSocket."""

from __future__ import annotations

import getpass
import os
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from starlette.routing import WebSocketRoute

from sie_core import __version__
from sie_core.api.context import Api, ready_problem
from sie_core.api.http.metrics import Totals
from sie_core.api.ops.feed import feed_route
from sie_core.auth import Auth
from sie_core.contracts import EngineStatus, ModelInfo, WatchableBackend
from sie_core.contracts.operational import SERVER_FEED
from sie_core.settings import CPU_BATCH_REQUESTS, Settings

PATH: Final = SERVER_FEED
PERIOD_S: Final = 0.2
"""Seconds between two messages to a watcher."""
SATURATED_FROM, SATURATED_UNTIL = 0.9, 0.7
"""Shares of what is taken at a time."""


@dataclass(slots=True)
class Watched:
    """What is told, by what tells it."""

    settings: Settings
    ready: Callable[[], bool]
    models: Callable[[], Sequence[ModelInfo]]
    status: Callable[[], EngineStatus | None]
    share: Callable[[], float]
    """How much is held of what is taken at a time."""
    machine_profile: str | None = None
    config_hash: Callable[[], str | None] = lambda: None
    name: Callable[[], str | None] = lambda: None
    """What others call this worker, where they know."""
    totals: Totals = field(default_factory=Totals)
    started_at: float = field(default_factory=time.time)
    _saturated: bool = False

    def describe(self) -> dict[str, Any]:
        """Describe the state of now."""
        settings, status = self.settings, self.status()
        models = sorted(self.models(), key=lambda model: -(model.memory_bytes or 0))
        gpus = _gpus(status, settings.gpu_type)
        self._saturated = self.share() >= (SATURATED_UNTIL if self._saturated else SATURATED_FROM)
        return {
            "name": settings.worker_id or self.name() or socket.gethostname(),
            "machine_profile": self.machine_profile,
            "pool_name": settings.pool,
            "bundle": settings.bundle,
            "bundle_config_hash": self.config_hash() or "",
            "max_batch_requests": settings.max_batch_requests
            or (settings.max_batch_cost if gpus else CPU_BATCH_REQUESTS),
            "timestamp": time.time(),
            "ready": self.ready(),
            "gpu_count": settings.gpu_count if settings.gpu_count is not None else len(gpus),
            "loaded_models": [model.id for model in models if model.state == "loaded"],
            "saturated": self._saturated,
            "server": _server(self.started_at),
            "gpus": gpus,
            "memory": _memory(status),
            "traffic": self.totals.describe(),
            "models": [_model(model, status) for model in models],
        }


def own_profile(settings: Settings, detected: str | None) -> str | None:
    """Name the machine of a server: as it is told, else by its GPU."""
    profile = settings.machine_profile or settings.gpu_type or detected
    return profile and profile.lower()


def status_route(watched: Watched, auth: Auth) -> WebSocketRoute:
    """Make the route."""
    return feed_route(PATH, PERIOD_S, watched.describe, auth)


def route_of(api: Api) -> WebSocketRoute:
    """Make the route of an API."""
    backend, settings = api.backend, api.settings
    watched = Watched(
        settings,
        lambda: ready_problem(api, backend.health()) is None,
        backend.models,
        lambda: backend.status() if isinstance(backend, WatchableBackend) else None,
        lambda: api.gate.in_flight / settings.max_concurrent_requests,
        api.machine_profile,
        totals=api.totals,
        started_at=api.started_at,
    )
    return status_route(watched, api.auth)


def _memory(status: EngineStatus | None) -> dict[str, Any] | None:
    """Describe the memory of the device, be it the processor."""
    if status is None or status.memory is None:
        return None
    return {
        "device": str(status.device),
        "used_bytes": status.memory.used,
        "total_bytes": status.memory.total,
        "threshold_pct": 100 * status.threshold,
    }


def _server(started_at: float) -> dict[str, Any]:
    return {
        "version": __version__,
        "uptime_seconds": round(time.time() - started_at, 3),
        "user": _user(),
        "working_dir": str(Path.cwd()),
        "pid": os.getpid(),
    }


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id that no name was given, as in containers
        return str(os.getuid())


def _gpus(status: EngineStatus | None, gpu_type: str | None) -> Sequence[dict[str, Any]]:
    """Describe the device; nothing for the processor."""
    if status is None or status.device.kind == "cpu":
        return []
    name, memory = status.device.name, status.memory
    return [
        {
            "device": str(status.device),
            "name": name,
            "gpu_type": gpu_type or status.device.gpu_type,
            "utilization_pct": None,
            "memory_used_bytes": None if memory is None else memory.used,
            "memory_total_bytes": None if memory is None else memory.total,
            "memory_threshold_pct": 100 * status.threshold,
        }
    ]


def _model(model: ModelInfo, status: EngineStatus | None) -> dict[str, Any]:
    queued = 0 if status is None else status.queued.get(model.id, 0)
    return {
        "name": model.id,
        "state": model.state,
        "device": str(status.device) if status and model.state == "loaded" else None,
        "memory_bytes": (model.memory_bytes or 0) if model.state == "loaded" else 0,
        "config": {
            "hf_id": model.id.partition(":")[0],
            "adapter": model.adapter,
            "inputs": model.inputs,
            "outputs": model.outputs,
            "dims": {name: dim for name, dim in model.dims.items() if dim is not None},
            "max_sequence_length": model.max_sequence_length,
        },
        "queue_depth": queued,
        "queue_pending_items": queued,
        "last_used_at": model.last_used_at,
        "last_error": model.last_error,
        "notes": model.notes,
    }
