"""The objects that every route of the config service uses."""

from __future__ import annotations

from dataclasses import dataclass, field

from anyio import CapacityLimiter
from starlette.requests import Request

from sie_cluster.config_service.api.tokens import Tokens
from sie_cluster.config_service.metrics import ConfigMetrics
from sie_cluster.config_service.publisher import Publisher
from sie_cluster.config_service.service import ConfigService
from sie_core.api import Browsers, Gate
from sie_core.api.body.body import read_body
from sie_core.api.http.offload import BodyThreads
from sie_core.auth import Auth
from sie_core.callers import Callers
from sie_core.catalog.configs.reading import LARGEST_CONFIG
from sie_core.contracts import InferenceError


@dataclass(frozen=True)
class ConfigApi:
    """One API over one service."""

    service: ConfigService
    tokens: Tokens
    gate: Gate
    metrics: ConfigMetrics
    publisher: Publisher | None = None
    """None where there is no broker: followers look at the epoch then."""
    browsers: Browsers = field(default_factory=Browsers)
    """Which web pages may call, under which host names."""
    auth: Auth = field(default_factory=Auth)
    """What every route asks for; `tokens` says what each asks for beside it."""
    callers: Callers = field(default_factory=Callers)
    """Names the client of a request."""
    writers: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(8))
    """Threads of writes, which wait for one another; readers have their own, which a store that hangs leaves alone."""
    readers: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(2))
    body_threads: BodyThreads = field(default_factory=BodyThreads)
    """The threads that unpack large bodies."""
    instance: None = None
    """No reply names this process."""

    async def body(self, request: Request) -> bytes:
        """Read the body of a request.

        Raises:
            InferenceError: As `read_body`; `PAYLOAD_TOO_LARGE` as soon as more than `LARGEST_CONFIG` bytes are
                announced or received.
        """
        try:
            return bytes(await read_body(request, LARGEST_CONFIG, self.gate, self.body_threads))
        except InferenceError as error:
            if error.code != "PAYLOAD_TOO_LARGE":
                raise
        told = f"The body is larger than {LARGEST_CONFIG} bytes, the most that a config may have: nothing was read."
        raise InferenceError("PAYLOAD_TOO_LARGE", told)

    @property
    def ready_problem(self) -> str | None:
        """Why requests are not answered; None where they are."""
        if not self.gate.is_open:
            return "draining"
        return self.service.problem or self.service.stale
