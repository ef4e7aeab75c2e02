"""What a gateway shows of the workers that it dials: each one's `/ws/status`, for diagnosis where heartbeats fail.

Requests go by the heartbeats all the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Sequence
from typing import NoReturn
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict
from sie_sdk.errors import SIEError

from sie_cluster.gateway.sight.models import fleet_models
from sie_cluster.settings import ClusterSettings
from sie_core.api.ops.health import ANY_GPU, NO_GPU
from sie_core.auth import client_token
from sie_core.contracts import FleetModel, ModelState, WorkerInfo
from sie_core.settings import SettingsError

LOOKUP_S = 10.0
"""Between two lookups of the names: a headless service has an address for each of its pods."""
AGAIN_S = 2.0
"""Between two attempts to reach a worker."""
SILENT_S = 5.0
"""A worker that sends nothing for so long is dialled anew; it sends five times a second."""

log = logging.getLogger(__name__)


class DialledWorkers:
    """Watches workers at their addresses. Methods are called on one event loop.

    Args:
        urls: Where their probes answer; each address of a name is a worker (of its IPv4 addresses, where it has both
            kinds), but of an `https` URL, whose certificate is the name's.
        token: What they ask for; None where they ask for none.
    """

    def __init__(self, urls: Sequence[str], token: str | None) -> None:
        self._urls, self._token = urls, token
        self._watches: dict[str, asyncio.Task[None]] = {}
        self._told: dict[str, _Told | None] = {}

    async def run(self) -> NoReturn:
        """Watch until cancelled."""
        try:
            while True:
                self._keep({address for url in self._urls for address in await _addresses(url)})
                await asyncio.sleep(LOOKUP_S)
        finally:
            self._keep(set())

    def workers(self) -> list[WorkerInfo]:
        """List all of them, those that do not answer as unhealthy ones named by their addresses."""
        return [_worker(url, told) for url, told in sorted(self._told.items())]

    def held_models(self) -> list[FleetModel]:
        """List the models that some worker has, loads or failed to load."""
        return fleet_models(
            (model.name, model.state, told.gpu, model.queue_depth)
            for told in self._told.values()
            if told is not None
            for model in told.models
        )

    def _keep(self, addresses: set[str]) -> None:
        """Watch these addresses and no others."""
        for gone in self._watches.keys() - addresses:
            self._watches.pop(gone).cancel()
            del self._told[gone]
        for url in addresses - self._watches.keys():
            self._told[url] = None
            self._watches[url] = asyncio.create_task(self._watch(url))

    async def _watch(self, url: str) -> None:
        from sie_sdk import SIEAsyncClient  # a tenth of all that a gateway imports, and most dial nobody

        said = ""
        while True:
            try:
                async with (
                    SIEAsyncClient(url, api_key=self._token, read_timeout_s=SILENT_S) as client,
                    contextlib.aclosing(client.watch(mode="worker")) as states,
                ):
                    async for state in states:
                        self._told[url], said = _Told.model_validate(state), ""
                problem = "it has ended"
            except (SIEError, ValueError) as error:  # of what it says, or of a URL that is none
                problem = str(error)
            self._told[url] = None
            if problem != said:
                log.warning("the worker at %s is not seen: %s", url, problem)
            said = problem
            await asyncio.sleep(AGAIN_S)


def dialled_workers(settings: ClusterSettings) -> DialledWorkers | None:
    """Make what `SIE_GATEWAY_HEALTH_MODE` asks for.

    Raises:
        SettingsError: It asks to dial workers, and none is named.
    """
    if settings.gateway_health_mode != "ws":
        return None
    if not settings.gateway_workers:
        raise SettingsError(
            "SIE_GATEWAY_HEALTH_MODE is 'ws', and SIE_GATEWAY_WORKERS names no worker to dial: set it to URLs, as "
            "http://worker-1:8081, or unset the mode."
        )
    return DialledWorkers(settings.gateway_workers, client_token(settings))


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True)


class _Gpu(_Part):
    gpu_type: str | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None


class _Model(_Part):
    name: str
    state: ModelState
    queue_depth: int = 0


class _Told(_Part):
    """What is read of a message of `/ws/status`."""

    name: str
    ready: bool
    machine_profile: str | None = None
    bundle: str = ""
    bundle_config_hash: str = ""
    pool_name: str = "_default"
    gpu_count: int = 0
    saturated: bool = False
    loaded_models: Sequence[str] = ()
    gpus: Sequence[_Gpu] = ()
    models: Sequence[_Model] = ()

    @property
    def gpu(self) -> str:
        return self.machine_profile or (ANY_GPU if self.gpus else NO_GPU)


def _worker(url: str, told: _Told | None) -> WorkerInfo:
    if told is None:
        return WorkerInfo(url, healthy=False, bundle="", queue_depth=0, url=url)
    used = [gpu.memory_used_bytes for gpu in told.gpus if gpu.memory_used_bytes is not None]
    total = [gpu.memory_total_bytes for gpu in told.gpus if gpu.memory_total_bytes is not None]
    return WorkerInfo(
        told.name,
        healthy=told.ready,
        bundle=told.bundle,
        queue_depth=sum(model.queue_depth for model in told.models),
        loaded_models=told.loaded_models,
        url=url,
        gpu=told.gpu,
        gpu_count=told.gpu_count,
        ready_gpu_slots=told.gpu_count if told.ready and not told.saturated else 0,
        saturated=told.saturated,
        memory_used_bytes=sum(used) if used else None,
        memory_total_bytes=sum(total) if total else None,
        bundle_config_hash=told.bundle_config_hash,
        pool_name=told.pool_name,
    )


async def _addresses(url: str) -> list[str]:
    """Give a URL for each address of its name; itself where that cannot be looked up, so that it is seen."""
    try:
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            return [url]
        found = await asyncio.get_running_loop().getaddrinfo(parts.hostname, parts.port or 80, type=socket.SOCK_STREAM)
    except (OSError, ValueError) as error:  # `a..b` and a port of 99999 are none that could be looked up
        log.warning("the name of the worker %s cannot be looked up: %s", url, error)
        return [url]
    # A worker with an address of each family is one worker.
    family = min((address[0] for address in found), key=(socket.AF_INET, socket.AF_INET6).index)
    hosts = {str(address[4][0]) for address in found if address[0] == family}
    return [f"http://{f'[{host}]' if ':' in host else host}:{parts.port or 80}" for host in hosts]
