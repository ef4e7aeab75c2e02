"""Brings loaded models in line with a new snapshot of the catalog, without losing a request. Event loop only.

It must not know where snapshots come from.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

from sie_core.catalog import Catalog
from sie_core.contracts import ResolvedModel
from sie_core.engine.models.record import ModelSlot, Slots
from sie_core.engine.residency.lifecycle import Lifecycle

log = logging.getLogger(__name__)

clock = time.monotonic


class Following:
    """Follows the catalog; no model waits for another's requests or downloads.

    A model whose config changed is loaded anew beside the old one, which answers until the new one is there, and serves
    on where that cannot be loaded; one that is not loaded is at once what its config says. One that was removed answers
    what it has and is unloaded. The newest config wins: what was still coming of an older one is given up.
    """

    def __init__(self, slots: Slots, lifecycle: Lifecycle) -> None:
        self._slots = slots
        self._lifecycle = lifecycle
        self._coming: dict[str, tuple[ModelSlot, asyncio.Task[None]]] = {}
        """What is being loaded to take a loaded model's place, and who has it loaded."""
        self._tasks: set[asyncio.Task[None]] = set()

    def follow(self, before: Catalog, after: Catalog) -> set[str]:
        """Start what the new snapshot asks of models that are loaded or were; return those that came or changed."""
        added = after.entries.keys() - before.entries.keys()
        removed = before.entries.keys() - after.entries.keys()
        changed = {
            model.id
            for model in after.models()
            if (old := before.entries.get(model.id)) and _served(old) != _served(model)
        }
        for name in removed:
            self._give_up(name)
            self._take_out(name)
        for name in changed:
            self._give_up(name)
            self._change(after.entries[name])
        log.info(
            "models of the catalog, snapshot %d: %s", after.epoch,
            "; ".join(f"{what} {', '.join(sorted(names))}" for what, names in
                      (("added", added), ("removed", removed), ("changed", changed)) if names) or "as before",
        )  # fmt: skip
        return added | changed

    async def settled(self) -> None:
        """Wait until everything started is done."""
        while self._tasks:
            await asyncio.wait(list(self._tasks))

    def close(self) -> None:
        """Stop what is under way."""
        for task in self._tasks:
            task.cancel()

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _give_up(self, name: str) -> None:
        """Give up what is being loaded of an older config."""
        if name in self._coming:
            fresh, taking_over = self._coming.pop(name)
            taking_over.cancel()
            fresh.retired = True
            self._start(self._lifecycle.retire(fresh))

    def _take_out(self, name: str) -> None:
        old = self._slots.take(name)
        if old is not None:
            self._start(self._lifecycle.retire(old))

    def _change(self, resolved: ResolvedModel) -> None:
        old = self._slots.known(resolved.id)
        if old is None:
            return
        if old.state != "loaded":
            self._take_out(resolved.id)
            fresh = self._slots.of(resolved)
            if old.state == "loading" or old.wanted_again:
                self._start(self._lifecycle.load_slot(fresh))
        elif old.loaded is not None and _served(old.loaded.resolved) == _served(resolved):
            old.resolved, old.failure = resolved, None  # back to what is loaded, after a config that could not be
        else:
            fresh = self._slots.beside(resolved)
            self._coming[resolved.id] = fresh, self._start(self._take_over(fresh))

    async def _take_over(self, fresh: ModelSlot) -> None:
        """Have a slot take its model's place once it is loaded; what may pass is tried again."""
        model = fresh.resolved.id
        await self._lifecycle.load_slot(fresh)
        while fresh.failure is not None and (old := self._serving_older(fresh)) is not None:
            log.error("%s: its changed config cannot be loaded, what is loaded serves on", model)
            old.resolved, old.failure = fresh.resolved, fresh.failure  # its own next load takes the changed config
            if not fresh.failure.permanent:
                await asyncio.sleep(max(0.0, fresh.failure.retry_at - clock()))
                while old.change is not None:
                    await asyncio.wait([old.change])
            if fresh.failure.permanent or self._serving_older(fresh) is not old:
                del self._coming[model]
                self._slots.forget(fresh)
                return
            await self._lifecycle.load_slot(fresh)
        del self._coming[model]
        self._take_out(model)
        self._slots.put(fresh)

    def _serving_older(self, fresh: ModelSlot) -> ModelSlot | None:
        """Return the slot that serves an older config in place of one that is not loaded; None where none does."""
        old = self._slots.known(fresh.resolved.id)
        if old is None or old.state != "loaded" or old.loaded is None:
            return None
        return None if _served(old.loaded.resolved) == _served(fresh.resolved) else old


def _served(model: ResolvedModel) -> ResolvedModel:
    """Leave out of a model's config what only people read."""
    return replace(model, config=replace(model.config, source="", license=None, expected=None))
