"""Brings loaded models in line with a new snapshot of the catalog, without losing a request. Event loop only."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection

from sie_core.catalog import Catalog
from sie_core.concurrency.tasks import Tasks
from sie_core.contracts import ResolvedModel
from sie_core.engine.models.loaded import served
from sie_core.engine.models.record import ON_THE_WAY, ModelRecord, Registry
from sie_core.engine.residency.lifecycle import Lifecycle

log = logging.getLogger(__name__)

MOST_LOGGED = 20
"""Models that one line of the log names."""


class Rollout:
    """Follows the catalog. Each model is rolled out separately and waits for no other.

    If a loaded model's config changes, a standby loads the new config next to the old one. The old one serves until the
    standby is ready, or on if the standby cannot be loaded. A changed model that is not loaded takes its new config at
    once. A removed model answers the requests it has and is unloaded. A newer config retires the standby of an older
    one.
    """

    def __init__(self, registry: Registry, lifecycle: Lifecycle, clock: Callable[[], float] = time.monotonic) -> None:
        self._registry = registry
        self._lifecycle = lifecycle
        self._clock = clock
        # By model: the loading standby, and the task that loads and promotes it.
        self._standbys: dict[str, tuple[ModelRecord, asyncio.Task[None]]] = {}
        self._tasks = Tasks()

    def follow(self, before: Catalog, after: Catalog) -> set[str]:
        """Start the rollout of a new snapshot; return the ids of models that were added or changed."""
        added = after.entries.keys() - before.entries.keys()
        removed = before.entries.keys() - after.entries.keys()
        changed = {
            model.id
            for model in after.models()
            if (old := before.entries.get(model.id))
            # Of ten thousand models few configs differ; comparing the rest would block the loop.
            and old.config is not model.config
            and served(old) != served(model)
        }
        for name in removed:
            self._drop_standby(name)
            self._retire(name)
        for name in changed:
            self._drop_standby(name)
            self._change(after.entries[name])
        log.info(
            "models of the catalog, snapshot %d: %s", after.epoch,
            "; ".join(f"{what} {_some(names)}" for what, names in
                      (("added", added), ("removed", removed), ("changed", changed)) if names) or "as before",
        )  # fmt: skip
        return added | changed

    def close(self) -> None:
        """Cancel the rollouts under way."""
        self._tasks.cancel()

    def _drop_standby(self, name: str) -> None:
        if name in self._standbys:
            standby, rolling_out = self._standbys.pop(name)
            rolling_out.cancel()
            standby.retired = True
            self._tasks.start(self._lifecycle.retire(standby))

    def _retire(self, name: str) -> None:
        record = self._registry.retire(name)
        if record is not None:
            self._tasks.start(self._lifecycle.retire(record))

    def _change(self, resolved: ResolvedModel) -> None:
        old = self._registry.known(resolved.id)
        if old is None:
            return
        loaded = old.ready()
        if loaded is None:
            was_loading = old.state in ON_THE_WAY
            self._retire(resolved.id)
            new = self._registry.of(resolved)
            if was_loading:
                self._tasks.start(self._lifecycle.load_record(new))
        elif served(loaded.resolved) == served(resolved):
            old.resolved, old.failure = resolved, None  # reverted to the loaded config: discard the failed change
        else:
            standby = self._registry.standby(resolved)
            self._standbys[resolved.id] = standby, self._tasks.start(self._roll_out(standby))

    async def _roll_out(self, standby: ModelRecord) -> None:
        # Load a standby and promote it. A failed load is tried again after its cooldown; the old model serves on.
        model = standby.resolved.id
        await self._lifecycle.load_record(standby)
        while standby.failure is not None and (old := self._serves_older(standby)) is not None:
            log.error("%s: its changed config cannot be loaded, what is loaded serves on", model)
            old.resolved, old.failure = standby.resolved, standby.failure  # its own next load takes the changed config
            if not standby.failure.permanent:
                await asyncio.sleep(max(0.0, standby.failure.retry_at - self._clock()))
                await old.at_rest()
            if standby.failure.permanent or self._serves_older(standby) is not old:
                del self._standbys[model]
                self._registry.forget(standby)
                return
            await self._lifecycle.load_record(standby)
        del self._standbys[model]
        self._retire(model)
        self._registry.promote(standby)

    def _serves_older(self, standby: ModelRecord) -> ModelRecord | None:
        # Return the record that serves an older config than the standby's; None if none does.
        old = self._registry.known(standby.resolved.id)
        loaded = None if old is None else old.ready()
        return None if loaded is None or served(loaded.resolved) == served(standby.resolved) else old


def _some(names: Collection[str]) -> str:
    # List names for the log: all of a few, the first of many.
    more = f" and {len(names) - MOST_LOGGED} more" if len(names) > MOST_LOGGED else ""
    return ", ".join(sorted(names)[:MOST_LOGGED]) + more
