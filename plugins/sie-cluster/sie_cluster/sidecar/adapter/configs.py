"""Tells the adapter process the configs of its bundle: all of them once it is connected, then what has changed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from sie_bundle.bundles.registry import Registry

from sie_cluster.messages.configs import config_pieces
from sie_core.contracts import ModelConfig

Send = Callable[[bytes], Awaitable[bool]]


class ConfigFeed:
    """What the adapter process of one connection knows, and what it has to know.

    Args:
        bundle: That of this worker: models that it does not serve are not told.
        send: Sends a piece and waits until there is room for the next; False where the connection has ended.
    """

    def __init__(self, bundle: str, send: Send) -> None:
        self._bundle, self._send = bundle, send
        self._wanted: Registry | None = None
        self._told: Registry | None = None
        self._known: Mapping[str, ModelConfig] = {}
        self._news = asyncio.Event()

    def follow(self, registry: Registry) -> None:
        """Tell another snapshot from now on. Configs that are unchanged have to be the same objects."""
        self._wanted = registry
        self._news.set()

    def begin(self) -> None:
        """Begin anew: the connection is another, and nothing is known."""
        self._told, self._known = None, {}
        self._news.set()

    async def run(self) -> None:
        """Tell what is not known, until cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            if self._wanted is not None and self._wanted is not self._told:
                await self._tell(self._wanted)

    async def _tell(self, registry: Registry) -> None:
        configs = registry.catalog.configs
        served = registry.rows.get(self._bundle, {}).values()
        own = {name: configs[name] for of_pool in served for name in of_pool}
        before, whole = self._known, self._told is None
        changed = [config for name, config in own.items() if before.get(name) is not config]
        removed = [name for name in before if name not in own]
        # Where the connection ends meanwhile, `begin` has all of it told again.
        self._told, self._known = registry, own
        for piece in config_pieces(registry.catalog.config_epoch or 0, changed, removed, whole=whole):
            if not await self._send(piece):
                return
