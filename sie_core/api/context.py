"""What every route stands on: the backend, the settings and the state of this process's API."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry

from sie_core.api.http.browsers import Browsers
from sie_core.api.http.gate import Gate
from sie_core.api.http.offload import Beside
from sie_core.contracts import InferenceBackend
from sie_core.settings import Settings


@dataclass(frozen=True, slots=True)
class Api:
    """One API over one backend."""

    backend: InferenceBackend
    settings: Settings
    gate: Gate
    registry: CollectorRegistry
    machine_profile: str | None = None
    """What `X-SIE-MACHINE-PROFILE` is compared with; None where the server is no particular machine."""
    browsers: Browsers = field(default_factory=Browsers)
    """Which web pages may call, and by which names."""
    beside: Beside = field(default_factory=Beside)
    """Where large bodies are read and written."""
    instance: str = field(default_factory=lambda: secrets.token_hex(32))
    """Tells this process from others, opaquely."""
    started_at: float = field(default_factory=time.time)
    """Unix seconds."""
