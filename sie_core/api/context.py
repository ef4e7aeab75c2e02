"""The objects that every route uses: the backend, the settings and the state of this process's API."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, field

from anyio import CapacityLimiter
from prometheus_client import CollectorRegistry

from sie_core.api.http.browsers import Browsers
from sie_core.api.http.gate import Gate
from sie_core.api.http.metrics import Totals
from sie_core.api.http.offload import BodyThreads
from sie_core.auth import Auth
from sie_core.callers import Callers
from sie_core.contracts import Health, InferenceBackend, InferenceError, ModelInfo, PoolLeases
from sie_core.settings import Settings


@dataclass(frozen=True, slots=True)
class Api:
    """One API over one backend."""

    backend: InferenceBackend
    settings: Settings
    gate: Gate
    registry: CollectorRegistry
    machine_profile: str | None = None
    """The value that `X-SIE-MACHINE-PROFILE` must have; None where the server has no machine profile."""
    places_requests: bool = False
    """Whether the backend has workers of several machine profiles and resource pools, and finds those asked for."""
    browsers: Browsers = field(default_factory=Browsers)
    """Which web pages may call, under which host names."""
    auth: Auth = field(default_factory=Auth)
    """Which clients may call."""
    callers: Callers = field(default_factory=Callers)
    """What tells a client from the others."""
    pools: PoolLeases | None = None
    """Leases workers; None where there are none to lease."""
    body_threads: BodyThreads = field(default_factory=BodyThreads)
    """The threads that read and write large bodies."""
    instance: str = field(default_factory=lambda: secrets.token_hex(32))
    """A random id of this process."""
    totals: Totals = field(default_factory=Totals)
    """What became of the inference requests."""
    metrics_turn: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(1))
    """Lets one request at a time write every metric."""
    started_at: float = field(default_factory=time.time)
    """Unix seconds."""


def known_models(api: Api) -> list[ModelInfo]:
    """List the models; none where the backend does not know them yet."""
    try:
        return api.backend.models()
    except InferenceError:
        return []


def ready_problem(api: Api, health: Health) -> str | None:
    """Return why new requests are not welcome; None where they are."""
    return health.ready_problem if api.gate.is_open else "draining"
