"""The configs that a sidecar tells: made a catalog on a thread, then served from one moment to the next."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial

from sie_bundle.bundles.hashes import config_row, hash_rows

from sie_cluster.messages.configs import ConfigState, read_config_piece
from sie_cluster.messages.export import Export, ExportedModel
from sie_cluster.messages.frames import FrameError, read_head
from sie_core.catalog import Catalog
from sie_core.concurrency.threads import on_thread
from sie_core.contracts import ModelConfig
from sie_core.serving.garbage import uncollected
from sie_core.settings import SettingsError

MISSING = "no configs have come from the config service yet; its sidecar fetches them"

log = logging.getLogger(__name__)

Build = Callable[[Export, Catalog], Catalog]


class Configs:
    """Those of one adapter process. Used on the event loop, but for what is built.

    Args:
        build: Makes the catalog of configs upon the one before; called on a thread.
        current: Returns the catalog in force.
        follow: Puts another in force.
        on_news: Called once it is, or cannot be: with why.
        has_own: Whether those of this machine are in force until a sidecar brings some.
    """

    def __init__(
        self,
        build: Build,
        current: Callable[[], Catalog],
        follow: Callable[[Catalog], None],
        on_news: Callable[[str | None], None],
        *,
        has_own: bool = False,
    ) -> None:
        self._build, self._current, self._follow, self._on_news = build, current, follow, on_news
        self._coming: dict[object, list[bytes]] = {}
        self._changes: asyncio.Queue[list[bytes]] = asyncio.Queue()
        self._models: dict[str, ExportedModel] = {}
        self._rows: dict[str, tuple[ModelConfig, str]] = {}
        self.there = asyncio.Event()
        """Set once there are configs."""
        self.state = ConfigState()
        self.problem: str | None = None if has_own else MISSING
        """Why there are none, or the last ones cannot be served."""
        if has_own:
            self.there.set()

    def take(self, sender: object, piece: bytes) -> None:
        """Take a piece of a change; with the last it is brought in force before long."""
        self._coming.setdefault(sender, []).append(piece)
        try:
            is_last = bool(read_head(piece).get("last"))
        except FrameError as error:
            log.error("a piece of configs cannot be read: %s", error)
            is_last = False
        if is_last:
            self._changes.put_nowait(self._coming.pop(sender))

    def forget(self, sender: object) -> None:
        """Drop a change whose sender has gone before it was complete."""
        self._coming.pop(sender, None)

    async def run(self) -> None:
        """Bring changes in force, one after the other, until cancelled."""
        while True:
            changes = [await self._changes.get()]
            while not self._changes.empty():
                changes.append(self._changes.get_nowait())
            try:
                catalog, state = await on_thread("sie-configs", partial(self._made, changes, self._current()))
            except (FrameError, SettingsError) as error:
                self.problem = f"the configs of the config service cannot be served: {error}"
                log.error("%s", self.problem)
            except Exception:
                self.problem = "the configs of the config service cannot be served; the log says why"
                log.exception("the configs of the config service cannot be served")
            else:
                self._follow(catalog)
                self.state, self.problem = state, None
                self.there.set()
            self._on_news(self.problem)

    @uncollected()
    def _made(self, changes: list[list[bytes]], before: Catalog) -> tuple[Catalog, ConfigState]:
        epoch = 0
        for change in changes:
            for number, frame in enumerate(change):
                piece = read_config_piece(frame)
                epoch = piece.epoch
                if piece.whole and not number:
                    self._models = {}
                self._models.update((model.id, model) for model in piece.models)
                for name in piece.removed:
                    self._models.pop(name, None)
        export = Export(epoch, tuple(model for _, model in sorted(self._models.items())))
        catalog = self._build(export, before)
        return catalog, ConfigState(epoch, self._hash(catalog.configs))

    def _hash(self, configs: Mapping[str, ModelConfig]) -> str:
        """Hash the configs; the row of each is written once."""
        rows = {}
        for name, config in configs.items():
            before = self._rows.get(name)
            rows[name] = before if before is not None and before[0] is config else (config, config_row(config))
        self._rows = rows
        return hash_rows({name: row for name, (_, row) in rows.items()})
