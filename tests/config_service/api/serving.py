"""The routes of a config service over a folder, with the installed plugins, for tests that need no socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import httpx
from sie_bundle.bundles.placement import Placement
from sie_bundle.bundles.reading import Bundle, read_bundles, shipped_bundles
from sie_cluster.config_service.api.app import create_app
from sie_cluster.config_service.api.context import ConfigApi
from sie_cluster.config_service.api.tokens import Tokens
from sie_cluster.config_service.metrics import ConfigMetrics
from sie_cluster.config_service.publisher import Publisher
from sie_cluster.config_service.service import ConfigService
from sie_cluster.config_service.store.backups import BackupStore
from sie_cluster.config_service.store.logs import ObjectLog
from sie_cluster.settings import ClusterSettings

from sie_core.api import Gate
from sie_core.catalog.configs.reading import config_of
from sie_core.catalog.configs.snapshot import make_catalog
from sie_core.defaults import BUILTINS
from sie_core.folder_store import FolderStore
from sie_core.plugins import PluginSet, discover

BASE = "sie_id: acme/base\nhf_id: acme/base\nprofiles: {default: {adapter_path: fake}, q: {extends: default}}\n"
TINY = {
    "sie_id": "acme/tiny",
    "hf_id": "acme/tiny",
    "tasks": {"encode": {"dense": {"dim": 4}}},
    "profiles": {"default": {"adapter_path": "fake", "max_batch_tokens": 16384}},
}
"""A config as published tooling writes one."""


@dataclass
class Served:
    """A service, its routes and where it writes."""

    client: httpx.AsyncClient
    service: ConfigService
    api: ConfigApi
    folder: Path

    def kept(self) -> set[str]:
        """What was written."""
        return {file.read_text() for file in self.folder.glob("*.json")}

    def metric(self, name: str, **labels: str) -> float:
        return self.api.metrics.registry.get_sample_value(name, labels) or 0.0


@cache
def plugins() -> PluginSet:
    return discover(ClusterSettings(), BUILTINS)


@cache
def placement() -> Placement:
    return Placement((*read_bundles(shipped_bundles()), Bundle("fakes", 500, ("fake",), source="here")), plugins())


@asynccontextmanager
async def serving(
    folder: Path,
    tokens: Tokens | None = None,
    publisher: Publisher | None = None,
    *,
    reads: bool = True,
    **options: Any,
) -> AsyncIterator[Served]:
    """Serve until the end of the block.

    Args:
        folder: Where the service writes, unless `options` name a log.
        tokens: Of the routes.
        publisher: Of changes.
        reads: Whether the service has read what was written.
        options: The service's.
    """
    base = make_catalog(1, [config_of(BASE.encode(), source="base", folder=Path())])
    log = options.pop("log", None) or ObjectLog(BackupStore(FolderStore(folder, durable=False)))
    service = ConfigService(base, placement(), log, **{"name": "sie-config-a", **options})
    api = ConfigApi(service, tokens or Tokens(production=False), Gate(64), ConfigMetrics(), publisher)
    api.metrics.watch(
        lambda: service.registry.catalog.config_epoch or 0, lambda _: 0, lambda: service.state.epoch, lambda: False
    )
    transport = httpx.ASGITransport(create_app(api), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        if reads:
            await asyncio.to_thread(service.read_on)
        try:
            yield Served(client, service, api, folder)
        finally:
            await asyncio.to_thread(service.stop)
