"""Asks the config service for its epoch every so often, and for its export where that is not the one in force."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from contextlib import suppress

from sie_cluster.configs.applying import Held, apply_export
from sie_cluster.configs.client import ConfigClient, Epoch
from sie_cluster.configs.metrics import FollowerMetrics
from sie_cluster.configs.state import State
from sie_cluster.programs.asking import Away
from sie_cluster.settings import ClusterSettings
from sie_core.catalog import ConfigError
from sie_core.concurrency.tasks import within
from sie_core.concurrency.threads import on_thread
from sie_core.plugins import PluginSet
from sie_core.settings import SettingsError

log = logging.getLogger(__name__)

JITTER = 0.1
"""The fraction by which pauses vary, so that a cluster does not ask all at once."""
AGAIN_S = 1.0
"""Between attempts while there are no configs, and at least between two looks."""
SHARE = 5
"""Between two looks passes this multiple of what the last one took, however many deltas ask for one."""
CATCH_UP_S = 0.5
"""How long a delta may still be on its way when the epoch of its change is heard of; and how long one of several
services may take to read what another wrote.
"""


class Poll:
    """The looks at one config service.

    Args:
        settings: How often to ask, and what the catalog is made with.
        plugins: What is installed.
        metrics: Counts.
        state: What is changed.
        client: Asks.
    """

    def __init__(
        self,
        settings: ClusterSettings,
        plugins: PluginSet,
        metrics: FollowerMetrics,
        state: State,
        client: ConfigClient,
    ) -> None:
        self._settings, self._plugins, self._metrics = settings, plugins, metrics
        self._state, self._client = state, client
        self._look_now = asyncio.Event()
        self._export_wanted = False
        self._whole_at = 0.0
        self._read: tuple[Held, int] | None = None
        """What the last export was made into, and its hash: a service gives the same bytes as long as it can."""

    def ask(self, *, export: bool) -> None:
        """Have the service asked soon, for its export in any case or only where its epoch is another."""
        self._export_wanted = self._export_wanted or export
        self._look_now.set()

    async def run(self) -> None:
        """Look again and again until cancelled."""
        while True:
            self._look_now.clear()
            began = time.monotonic()
            try:
                await self._look()
            except Away as error:
                self._without(str(error))
            except (ConfigError, SettingsError) as error:
                self._without(f"its export cannot be used: {str(error)[:500]}")
            except Exception:
                log.exception("the config service cannot be followed")
                self._without("its answer cannot be used; the log says why")
            await self._pause(SHARE * (time.monotonic() - began))

    async def _pause(self, rest_s: float) -> None:
        """Wait for the next look: for an interval, or until something asks for one and `rest_s` have passed."""
        interval_s = self._settings.worker_config_poll_interval_ms / 1000
        if self._state.held is None:
            await asyncio.sleep(AGAIN_S * random.uniform(1 - JITTER, 1))
            return
        least_s = min(interval_s, max(AGAIN_S, rest_s))
        await asyncio.sleep(least_s * random.uniform(1 - JITTER, 1))
        left_s = interval_s * random.uniform(1 - JITTER, 1 + JITTER) - least_s
        await within(self._look_now.wait(), max(0.0, left_s))

    async def _look(self) -> None:
        """Ask for the epoch, and for the export where it is not the one in force."""
        told, state = await self._client.epoch(), self._state
        if state.held is not None and told.epoch < state.held.told.epoch:
            await asyncio.sleep(CATCH_UP_S)
            told = await self._client.epoch()
        wanted = self._export_wanted or state.held is None or time.monotonic() >= self._whole_at
        if wanted or not (state.is_of(told) or await self._caught_up(told)):
            await self._fetch()
        if state.problem is not None and state.held is not None:
            log.info(
                "the config service is followed: %d models, epoch %d",
                len(state.held.registry.catalog.configs),
                state.held.told.epoch,
            )
        state.problem = None
        self._metrics.reached.set(1)

    async def _caught_up(self, told: Epoch) -> bool:
        """Wait for deltas that are on their way; whether they have led to what the service told."""
        state = self._state
        with suppress(TimeoutError):
            async with asyncio.timeout(CATCH_UP_S):
                while state.held is not None and state.held.told.epoch < told.epoch:
                    state.moved.clear()
                    await state.moved.wait()
        return state.is_of(told)

    async def _fetch(self) -> None:
        """Put the export in force, unless deltas have led beyond it while it came."""
        state = self._state
        began, self._export_wanted = state.held, False
        try:
            raw = await self._client.export()
            if self._read is not None and self._read[0] is began and self._read[1] == hash(raw):
                self._next_whole()
                return
            held = await on_thread("sie-configs", lambda: apply_export(raw, self._settings, self._plugins, began))
        except BaseException:
            self._export_wanted = True
            self._metrics.exports.labels("failed").inc()
            raise
        self._metrics.exports.labels("applied").inc()
        async with state.turn:
            if state.held is not began and state.held is not None and state.held.told.epoch > held.told.epoch:
                self._look_now.set()
                return
            self._read = (held, hash(raw))
            state.put(held)
        self._next_whole()
        if not held.agrees:
            log.warning("the export of epoch %d has other hashes than what is read of it here", held.told.epoch)

    def _next_whole(self) -> None:
        interval_ms = self._settings.worker_config_full_export_interval_ms
        pause_s = interval_ms / 1000 * random.uniform(1 - JITTER, 1 + JITTER) if interval_ms else float("inf")
        self._whole_at = time.monotonic() + pause_s

    def _without(self, problem: str) -> None:
        """Go on with what is known while the service is away."""
        if self._state.problem != problem:
            log.warning("the config service is not followed: %s", problem)
        self._state.problem = problem
        self._metrics.reached.set(0)
