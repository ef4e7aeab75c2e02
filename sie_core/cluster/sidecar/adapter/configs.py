"""Tells the adapter process the configs of its bundle: all of them once it is connected, then what has changed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from sie_core.catalog.sources.export import Export, ExportedModel
from sie_core.cluster.messages.configs import config_pieces

Send = Callable[[bytes], Awaitable[bool]]


class ConfigFeed:
    """What the adapter process of one connection knows, and what it has to know.

    Args:
        bundle: That of this worker: models that it does not serve are not told.
        send: Sends a piece and waits until there is room for the next; False where the connection has ended.
    """

    def __init__(self, bundle: str, send: Send) -> None:
        self._bundle, self._send = bundle, send
        self._wanted: Export | None = None
        self._told: Export | None = None
        self._known: Mapping[str, ExportedModel] = {}
        self._news = asyncio.Event()

    def follow(self, export: Export) -> None:
        """Tell another snapshot from now on."""
        self._wanted = export
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

    async def _tell(self, export: Export) -> None:
        own = {model.id: model for model in export.models if _serves(self._bundle, model)}
        before, whole = self._known, self._told is None
        changed = [model for model in own.values() if whole or before.get(model.id) != model]
        removed = [] if whole else [name for name in before if name not in own]
        # Where the connection ends meanwhile, `begin` has all of it told again.
        self._told, self._known = export, own
        for piece in config_pieces(export.epoch, changed, removed, whole=whole):
            if not await self._send(piece):
                return


def _serves(bundle: str, model: ExportedModel) -> bool:
    return any(bundle in bundles for bundles in model.bundles.values())
