"""Brings loaded models in line with a new snapshot of the catalog, without losing a request. Event loop only.

It must not know where snapshots come from.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

from sie_core.catalog import Catalog
from sie_core.contracts import ResolvedModel
from sie_core.engine.lifecycle import Lifecycle
from sie_core.engine.slots import ModelSlot, Slots

log = logging.getLogger(__name__)


class Following:
    """Follows the catalog.

    A model whose config changed is loaded anew beside the old one, which answers until the new one is there, and stays
    where that cannot be loaded. One that was removed answers what it has and is unloaded.
    """

    def __init__(self, slots: Slots, lifecycle: Lifecycle) -> None:
        self._slots = slots
        self._lifecycle = lifecycle
        self._one_by_one = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    def follow(self, before: Catalog, after: Catalog) -> None:
        """Start what the new snapshot asks of models that are loaded or were."""
        added = after.entries.keys() - before.entries.keys()
        removed = before.entries.keys() - after.entries.keys()
        changed = [
            model.id
            for model in after.models()
            if (old := before.entries.get(model.id)) and _served(old) != _served(model)
        ]
        for name in removed:
            self._start(self._remove(name))
        for name in changed:
            self._start(self._exchange(after.entries[name]))
        log.info(
            "models of the catalog, snapshot %d: %s", after.epoch,
            "; ".join(f"{what} {', '.join(sorted(names))}" for what, names in
                      (("added", added), ("removed", removed), ("changed", changed)) if names) or "as before",
        )  # fmt: skip

    async def settled(self) -> None:
        """Wait until everything started is done."""
        while self._tasks:
            await asyncio.wait(list(self._tasks))

    def close(self) -> None:
        """Stop what is under way."""
        for task in self._tasks:
            task.cancel()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _remove(self, name: str) -> None:
        async with self._one_by_one:
            slot = self._slots.take(name)
            if slot is not None:
                await self._lifecycle.retire(slot)

    async def _exchange(self, resolved: ResolvedModel) -> None:
        async with self._one_by_one:
            old = self._slots.known(resolved.id)
            if old is None:
                return
            if old.change is not None:
                await asyncio.wait([old.change])
            if old.loaded is None:
                self._slots.take(resolved.id)
                return
            fresh = ModelSlot(resolved, pinned=old.pinned)
            await self._lifecycle.load_apart(fresh)
            if fresh.loaded is None:
                old.failure = fresh.failure
                log.error("%s: its changed config cannot be loaded, what is loaded serves on", resolved.id)
                return
            self._slots.put(fresh)
            await self._lifecycle.retire(old)


def _served(model: ResolvedModel) -> ResolvedModel:
    """Leave out of a model's config what only people read."""
    return replace(model, config=replace(model.config, source="", license=None, expected=None))
