"""Follows the config service: deltas as they come, its epoch every so often, its export where the two disagree.

What it holds is always one state of the service: a delta is applied upon the very epoch before it, or not at all.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Literal

from sie_core.catalog import ConfigError
from sie_core.catalog.building import filter_of
from sie_core.catalog.bundles.registry import Registry
from sie_core.cluster.configs.applying import Held, apply_delta, apply_export
from sie_core.cluster.configs.client import ConfigClient, ConfigServiceAway, Epoch
from sie_core.cluster.configs.delta import RefusedDelta, read_delta
from sie_core.cluster.configs.metrics import FollowerMetrics
from sie_core.cluster.configs.snapshot import read_snapshot
from sie_core.cluster.configs.waiting import Waiting
from sie_core.cluster.subjects import ALL_MODELS
from sie_core.concurrency.threads import on_thread
from sie_core.contracts import Message, QueueError, QueueTransport
from sie_core.plugins import PluginSet
from sie_core.settings import Settings, SettingsError

log = logging.getLogger(__name__)

Source = Literal["config service", "kept snapshot"]

SNAPSHOT_S, SNAPSHOT_AGAIN_S = 2.0, 10.0
"""How long the kept snapshot may take, and between attempts to read it: the service itself is asked more often."""
JITTER = 0.1
"""The fraction by which pauses vary, so that a cluster does not ask all at once."""
AGAIN_S = 1.0
"""Between attempts while there are no configs, and at least between two looks."""
CATCH_UP_S = 0.5
"""How long a delta may still be on its way when the epoch of its change is heard of."""
SHARE = 5
"""Between two looks passes this multiple of what the last one took, however many deltas ask for one."""
_WITHOUT_LOOK = frozenset({"too_large", "unreadable", "untrusted"})
"""Refusals of what anybody may have sent: nobody is asked for it."""


class Follower:
    """The configs of the config service, as one process of the cluster knows them.

    Args:
        settings: The service's URL, the read token, who is trusted, how often to ask.
        plugins: What is installed.
        metrics: Counts.
        on_registry: Called on the event loop with each registry that is put in force; models that did not change have
            the very same configs in it as in the one before.
    """

    def __init__(
        self,
        settings: Settings,
        plugins: PluginSet,
        metrics: FollowerMetrics,
        on_registry: Callable[[Registry], None],
    ) -> None:
        self._settings, self._plugins, self._metrics, self._on_registry = settings, plugins, metrics, on_registry
        self._client = ConfigClient.of(settings)
        self._serves = filter_of(settings)
        self._transport: QueueTransport | None = None
        self._held: Held | None = None
        self._source: Source | None = None
        self._problem: str | None = "the config service was not asked yet"
        self._waiting = Waiting()
        self._moved, self._look_now = asyncio.Event(), asyncio.Event()
        self._turn = asyncio.Lock()
        self._export_wanted = False
        self._whole_at, self._snapshot_at = 0.0, 0.0
        self._read: tuple[Held, int] | None = None
        """What the last export was made into, and its hash: a service gives the same bytes as long as it can."""

    @property
    def url(self) -> str:
        """The config service's."""
        return self._client.url

    @property
    def registry(self) -> Registry | None:
        """The configs in force; None before the first are known."""
        return None if self._held is None else self._held.registry

    @property
    def sources(self) -> Mapping[str, str]:
        """By model, `api` or `filesystem`."""
        return {} if self._held is None else self._held.sources

    @property
    def source(self) -> Source | None:
        """Where the configs in force were first read; deltas may have changed them since."""
        return self._source

    @property
    def ready_problem(self) -> str | None:
        """Why there are no configs; None where there are."""
        if self._held is not None:
            return None
        return f"no model configs yet, neither of the config service nor a kept snapshot: {self._problem}"

    @property
    def note(self) -> str | None:
        """What an operator should know of while requests are answered; None where the service is followed."""
        if self._held is None:
            return self.ready_problem
        if self._source == "kept snapshot":
            return f"model configs are those of a kept snapshot, of epoch {self._held.told.epoch}: {self._problem}"
        if self._problem is not None:
            return f"the config service is not followed, what is known of it is served: {self._problem}"
        if not self._held.agrees:
            return (
                "the model configs read here have other hashes than at the config service: run one release everywhere"
            )
        return None

    async def hear(self, transport: QueueTransport) -> None:
        """Take deltas from now on; called once the broker is reached."""
        await transport.subscribe(ALL_MODELS, self._arrived)
        self._transport = transport
        self._look_now.set()  # for what changed before

    def look_soon(self) -> None:
        """Have the service asked soon: work has come for a config that is not known here."""
        self._ask(export=False)

    async def run(self) -> None:
        """Follow until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._look_again_and_again())
                group.create_task(self._take_deltas())
        finally:
            await self._client.close()

    def _arrived(self, message: Message) -> None:
        if not self._waiting.put(message.payload):
            self._metrics.deltas.labels("too_large").inc()
            self._ask(export=True)

    async def _take_deltas(self) -> None:
        while True:
            payload = await self._waiting.get()
            try:
                await self._take(payload)
            except RefusedDelta as refused:
                self._refuse(refused)
            except Exception:
                log.exception("a delta of the config service cannot be applied; its export is fetched")
                self._ask(export=True)
            else:
                self._metrics.deltas.labels("applied").inc()

    async def _take(self, payload: bytes) -> None:
        """Apply a delta.

        Raises:
            RefusedDelta: It is not applied.
        """
        delta = read_delta(payload, self._settings.nats_config_trusted_producers)
        async with self._turn:
            held = self._held
            if held is None:
                raise RefusedDelta("gap", "nothing is known yet")
            self._put(await on_thread("sie-configs", lambda: apply_delta(held, delta, self._serves)))
        log.info(
            "model configs: epoch %d, %s %s", delta.epoch, delta.model_id, "removed" if delta.deleted else "changed"
        )

    def _refuse(self, refused: RefusedDelta) -> None:
        self._metrics.deltas.labels(refused.reason).inc()
        level = logging.DEBUG if refused.reason in ("old_epoch", "gap") else logging.WARNING
        log.log(level, "a delta is not applied (%s): %s", refused.reason, refused)
        if refused.reason not in _WITHOUT_LOOK:
            self._ask(export=refused.reason != "old_epoch")

    def _ask(self, *, export: bool) -> None:
        """Have the config service asked soon."""
        self._export_wanted = self._export_wanted or export
        self._look_now.set()

    async def _look_again_and_again(self) -> None:
        while True:
            self._look_now.clear()
            began = time.monotonic()
            try:
                await self._look()
            except ConfigServiceAway as error:
                await self._without(str(error))
            except (ConfigError, SettingsError) as error:
                await self._without(f"its export cannot be used: {str(error)[:500]}")
            except Exception:
                log.exception("the config service cannot be followed")
                await self._without("its answer cannot be used; the log says why")
            await self._pause(SHARE * (time.monotonic() - began))

    async def _pause(self, rest_s: float) -> None:
        """Wait for the next look: for an interval, or until something asks for one and `rest_s` have passed."""
        interval_s = self._settings.worker_config_poll_interval_ms / 1000
        least_s = AGAIN_S if self._held is None else min(interval_s, max(AGAIN_S, rest_s))
        await asyncio.sleep(least_s * random.uniform(1 - JITTER, 1))
        if self._held is None:
            return
        left_s = interval_s * random.uniform(1 - JITTER, 1 + JITTER) - least_s
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, left_s)):
                await self._look_now.wait()

    async def _look(self) -> None:
        """Ask for the epoch, and for the export where it is not the one in force."""
        told = await self._client.epoch()
        wanted = self._export_wanted or self._held is None or time.monotonic() >= self._whole_at
        if wanted or not (self._is_known(told) or await self._caught_up(told)):
            await self._fetch()
        if self._problem is not None:
            log.info("the config service is followed")
        self._problem, self._source = None, "config service"
        self._metrics.reached.set(1)

    def _is_known(self, told: Epoch) -> bool:
        """Whether the configs in force are those of an epoch; a service may leave the hashes empty."""
        if self._held is None or self._source != "config service":
            return False
        mine = self._held.told
        return told.epoch == mine.epoch and all(
            theirs in ("", ours)
            for theirs, ours in (
                (told.bundles_hash, mine.bundles_hash),
                (told.bundle_config_hashes_hash, mine.bundle_config_hashes_hash),
            )
        )

    async def _caught_up(self, told: Epoch) -> bool:
        """Wait for deltas that are on their way; whether they have led to what the service told, or beyond it."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CATCH_UP_S):
                while self._held is not None and self._held.told.epoch < told.epoch:
                    self._moved.clear()
                    await self._moved.wait()
        return self._is_known(told)

    async def _fetch(self) -> None:
        """Put the export in force, unless deltas have led beyond it while it came."""
        began, self._export_wanted = self._held, False
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
        async with self._turn:
            overtaken = self._held is not began and self._held is not None and self._held.told.epoch > held.told.epoch
            if not overtaken:
                self._read = (held, hash(raw))
                self._put(held)
        if overtaken:
            self._look_now.set()
            return
        self._next_whole()
        if not held.agrees:
            log.warning("the export of epoch %d has other hashes than what is read of it here", held.told.epoch)

    def _next_whole(self) -> None:
        interval_ms = self._settings.worker_config_full_export_interval_ms
        pause_s = interval_ms / 1000 * random.uniform(1 - JITTER, 1 + JITTER) if interval_ms else float("inf")
        self._whole_at = time.monotonic() + pause_s

    async def _without(self, problem: str) -> None:
        """Go on while the service is away; where nothing is known yet, with the kept snapshot."""
        if self._problem != problem:
            log.warning("the config service is not followed: %s", problem)
        self._problem = problem
        self._metrics.reached.set(0)
        if self._held is not None or self._transport is None or time.monotonic() < self._snapshot_at:
            return
        self._snapshot_at = time.monotonic() + SNAPSHOT_AGAIN_S
        try:
            async with asyncio.timeout(SNAPSHOT_S):
                raw = await read_snapshot(self._transport)
            if raw is None:
                return
            held = await on_thread("sie-configs", lambda: apply_export(raw, self._settings, self._plugins, None))
        except (QueueError, TimeoutError, ConfigError, SettingsError) as error:
            log.warning("no kept snapshot of the model configs can be read: %s", error or "the broker does not answer")
            return
        async with self._turn:
            self._source = "kept snapshot"
            self._put(held)
        log.warning(
            "model configs are those of the kept snapshot, of epoch %d, until the service answers", held.told.epoch
        )

    def _put(self, held: Held) -> None:
        self._held = held
        self._metrics.epoch.set(held.told.epoch)
        self._moved.set()
        self._on_registry(held.registry)
