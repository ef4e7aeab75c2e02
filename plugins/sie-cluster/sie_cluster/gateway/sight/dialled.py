"""What a gateway shows of workers that it dials: each one's `/ws/status`, to find out why heartbeats do not come."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import Any, NoReturn
from urllib.parse import urlsplit

from sie_sdk.errors import SIEError

from sie_cluster.gateway.sight.heard import fleet_models
from sie_cluster.settings import ClusterSettings
from sie_core.api.ops.health import ANY_GPU, NO_GPU
from sie_core.auth import client_token
from sie_core.contracts import FleetModel, WorkerInfo

LOOKUP_S, AGAIN_S = 10.0, 2.0
"""Between two lookups of the names, and between two attempts to reach a worker."""
SILENT_S = 5.0
"""A worker that sends nothing for so long is dialled anew; it sends five times a second."""

log = logging.getLogger(__name__)


_Seen = tuple[WorkerInfo, list[tuple[str, str, str, int]]]  # of each model name, state, GPU and queue depth


class DialledWorkers:
    """Watches workers at their addresses. Methods are called on one event loop.

    Args:
        urls: Where their probes answer. Each IPv4 address of an `http` name is a worker, or else each IPv6 one.
        token: What they ask for; None where they ask for none.
    """

    def __init__(self, urls: Sequence[str], token: str | None) -> None:
        self.urls, self._token = urls, token
        self._watches: dict[str, asyncio.Task[None]] = {}
        self._seen: dict[str, _Seen] = {}

    async def run(self) -> NoReturn:
        """Watch until cancelled."""
        try:
            while True:
                addresses = {address for url in self.urls for address in await _addresses(url)}
                for gone in self._watches.keys() - addresses:
                    self._watches.pop(gone).cancel()
                for url in addresses - self._watches.keys():
                    self._watches[url] = asyncio.create_task(self._watch(url))
                await asyncio.sleep(LOOKUP_S)
        finally:
            for task in self._watches.values():
                task.cancel()

    def workers(self) -> list[WorkerInfo]:
        """List all of them, those that do not answer as unhealthy ones named by their addresses."""
        away = (WorkerInfo(url, healthy=False, bundle="", queue_depth=0, url=url) for url in sorted(self._watches))
        return [self._seen[each.url][0] if each.url in self._seen else each for each in away]

    def held_models(self) -> list[FleetModel]:
        """List the models that some worker has, loads or failed to load."""
        return fleet_models(model for _, models in self._seen.values() for model in models)

    async def _watch(self, url: str) -> None:
        from sie_sdk import SIEAsyncClient  # a tenth of all that a gateway imports, and most dial nobody

        said = ""
        while True:
            try:
                client = SIEAsyncClient(url, api_key=self._token, read_timeout_s=SILENT_S)
                async with client, aclosing(client.watch(mode="worker")) as states:
                    async for state in states:
                        self._seen[url], said = _read(url, state), ""
                problem = "it has ended"
            except (SIEError, ValueError, KeyError, TypeError, AttributeError) as error:  # of what it says, or of a URL
                problem = str(error)
            finally:
                self._seen.pop(url, None)
            if problem != said:
                log.warning("the worker at %s is not seen: %s", url, problem)
            said = problem
            await asyncio.sleep(AGAIN_S)


def dialled_workers(settings: ClusterSettings) -> DialledWorkers | None:
    """Make what `SIE_GATEWAY_HEALTH_MODE` asks for; raises `SettingsError`."""
    return DialledWorkers(settings.dialled(), client_token(settings)) if settings.gateway_health_mode == "ws" else None


def _read(url: str, told: Mapping[str, Any]) -> _Seen:
    """Read a message of `/ws/status`."""
    gpu, slots = told.get("machine_profile") or (ANY_GPU if told.get("gpus") else NO_GPU), int(told.get("gpu_count", 0))
    models = [(str(each["name"]), str(each["state"]), gpu, int(each["queue_depth"])) for each in told.get("models", ())]
    ready, saturated = bool(told["ready"]), bool(told.get("saturated"))
    worker = WorkerInfo(
        str(told["name"]), ready, told.get("bundle", ""), queue_depth=sum(depth for *_, depth in models), url=url,
        loaded_models=told.get("loaded_models", ()), gpu=gpu, gpu_count=slots, saturated=saturated,
        ready_gpu_slots=slots if ready and not saturated else 0, pool_name=told.get("pool_name", "_default"),
        bundle_config_hash=told.get("bundle_config_hash", ""),
    )  # fmt: skip
    return worker, models


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
    hosts = {str(address[4][0]) for address in found}
    hosts = {host for host in hosts if ":" not in host} or {f"[{host}]" for host in hosts}
    return [f"http://{host}:{parts.port or 80}" for host in hosts]
