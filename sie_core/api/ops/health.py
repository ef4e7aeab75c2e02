"""Liveness and readiness for orchestrators, and `/health` for people and clients."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any, Final, Literal

import orjson
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from sie_core import __version__
from sie_core.api.body.negotiation import JSON_TYPE
from sie_core.api.context import Api, known_models, ready_problem
from sie_core.api.openapi.descriptions import lookup, probe
from sie_core.api.schema import Schema
from sie_core.contracts import FleetBackend, WatchableBackend

NO_GPU, ANY_GPU = "cpu", "any"
"""The `gpu` of workers without a machine profile, which have no GPU, or have one. To ask for either asks any worker."""


class HealthReply(Schema):
    """The server and the models it holds."""

    status: Literal["healthy", "degraded", "unhealthy", "no_workers"]
    type: Literal["standalone", "gateway"]
    version: str
    uptime_s: float
    problems: list[str]
    requests_in_flight: int
    cluster: dict[str, float]
    workers: list[dict[str, Any]]
    models: list[dict[str, Any]]
    configured_gpu_types: list[str]
    live_gpu_types: list[str]


async def healthz(api: Api, request: Request) -> Response:
    """Say that the process answers."""
    return PlainTextResponse("ok")


async def livez(api: Api, request: Request) -> Response:
    """Say whether work makes progress; 503 means that only a restart helps."""
    return _verdict(api.backend.health().live_problem)


async def readyz(api: Api, request: Request) -> Response:
    """Say whether new requests are welcome; 503 while models are preloaded and while the server drains."""
    return _verdict(ready_problem(api, api.backend.health()))


async def health(api: Api, request: Request) -> Response:
    """Describe the server."""
    return Response(orjson.dumps(describe_health(api)), media_type=JSON_TYPE)


ENDPOINTS: Final = (
    probe("/healthz", healthz, "The process answers.", can_fail=False),
    probe("/livez", livez, "Work makes progress."),
    probe("/readyz", readyz, "New requests are welcome."),
    lookup("/health", health, HealthReply, tag="status", head=True),
)


def describe_health(api: Api) -> dict[str, Any]:
    """Describe the server in the fields a gateway's `/health` has; a standalone one has no workers but itself."""
    health = api.backend.health()
    problems = [each for each in (health.live_problem, ready_problem(api, health), *health.notes) if each]
    status = "unhealthy" if health.live_problem else "degraded" if problems else "healthy"
    about = {
        "version": __version__,
        "uptime_s": round(time.time() - api.started_at, 3),
        "problems": list(dict.fromkeys(problems)),
        "requests_in_flight": api.gate.in_flight,
    }
    if not isinstance(api.backend, FleetBackend):
        return {"status": status, "type": "standalone", **about, **_alone(api)}
    fleet = describe_fleet(api, api.backend)
    status = status if any(worker["healthy"] for worker in fleet["workers"]) else "no_workers"
    live = {worker["gpu"] for worker in fleet["workers"] if worker["healthy"]} - {NO_GPU, ANY_GPU}
    configured = list(api.backend.configured_gpus())
    return {
        "status": status,
        "type": "gateway",
        **about,
        **fleet,
        "configured_gpu_types": configured,
        "live_gpu_types": sorted(live),
    }


def describe_fleet(api: Api, backend: FleetBackend) -> dict[str, Any]:
    """Describe the workers behind a gateway and what they have."""
    workers, models = [asdict(worker) for worker in backend.workers()], [asdict(each) for each in backend.held_models()]
    cluster = {
        "worker_count": len(workers),
        "gpu_count": sum(worker["gpu_count"] for worker in workers),
        "models_loaded": sum(model["state"] == "loaded" for model in models),
        "total_qps": round(api.gate.per_s, 2),
    }
    return {"cluster": cluster, "workers": workers, "models": models}


def _alone(api: Api) -> dict[str, Any]:
    held = [model for model in known_models(api) if model.state != "available"]
    status = api.backend.status() if isinstance(api.backend, WatchableBackend) else None
    gpu = api.settings.gpu_type or (status and status.device.gpu_type)
    profiles = [api.machine_profile] if api.machine_profile else []
    models = [{"name": model.id, "state": model.state, "worker_count": 1, "gpu_types": profiles} for model in held]
    loaded = sum(model.state == "loaded" for model in held)
    cluster = {
        "worker_count": 1,
        "gpu_count": 1 if gpu else 0,
        "models_loaded": loaded,
        "total_qps": round(api.gate.per_s, 2),
    }
    return {
        "cluster": cluster,
        "workers": [],
        "models": models,
        "configured_gpu_types": [],
        "live_gpu_types": profiles,
    }


def _verdict(problem: str | None) -> Response:
    return PlainTextResponse(problem or "ok", 503 if problem else 200)
