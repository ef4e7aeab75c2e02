"""Follows the config service: deltas as they come, its epoch every so often, its export where the two disagree.

What it holds is always one state of the service: a delta is applied upon the very epoch before it, or not at all.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from sie_bundle.bundles.registry import Registry

from sie_cluster.configs.applying import apply_delta
from sie_cluster.configs.client import ConfigClient
from sie_cluster.configs.delta import RefusedDelta, read_delta
from sie_cluster.configs.metrics import FollowerMetrics
from sie_cluster.configs.polling import Poll
from sie_cluster.configs.state import State
from sie_cluster.queue.subjects import ALL_MODELS
from sie_cluster.settings import ClusterSettings
from sie_core.catalog.building import filter_of
from sie_core.concurrency.tasks import supervised
from sie_core.concurrency.threads import on_thread
from sie_core.contracts import Message, QueueTransport
from sie_core.plugins import PluginSet

log = logging.getLogger(__name__)

MOST_WAITING = 256
"""Deltas that came and wait for their turn, of a megabyte each at most; where more come, the export is fetched."""
_WITHOUT_LOOK = frozenset({"too_large", "unreadable", "untrusted"})
"""Refusals of what anybody may have sent: nobody is asked for it."""
_USUAL = frozenset({"old_epoch", "gap"})
"""What becomes of deltas that overtake an export, or come while one is missing: metrics count them, no log tells."""


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
        settings: ClusterSettings,
        plugins: PluginSet,
        metrics: FollowerMetrics,
        on_registry: Callable[[Registry], None],
    ) -> None:
        self._trusted, self._serves = settings.nats_config_trusted_producers, filter_of(settings)
        self._metrics, self._client = metrics, ConfigClient(settings)
        self.state = State(metrics, on_registry)
        """What is in force, and what there is to say of it."""
        self._poll = Poll(settings, plugins, metrics, self.state, self._client)
        self._waiting: asyncio.Queue[bytes] = asyncio.Queue(MOST_WAITING)

    @property
    def url(self) -> str:
        """The config service's."""
        return self._client.url

    async def hear(self, transport: QueueTransport) -> None:
        """Take deltas from now on; called once the broker is reached."""
        await transport.subscribe(ALL_MODELS, self._arrived)
        self.look_soon()  # for what changed before

    def look_soon(self) -> None:
        """Have the service asked soon: something speaks of a config that is not known here."""
        self._poll.ask(export=False)

    async def run(self) -> None:
        """Follow until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(supervised("asking the config service", self._poll.run))
                group.create_task(supervised("changes of model configs", self._take_deltas))
        finally:
            await self._client.close()

    def _arrived(self, message: Message) -> None:
        try:
            self._waiting.put_nowait(message.payload)
        except asyncio.QueueFull:
            self._metrics.deltas.labels("too_large").inc()
            self._poll.ask(export=True)

    async def _take_deltas(self) -> None:
        while True:
            payload = await self._waiting.get()
            try:
                await self._take(payload)
            except RefusedDelta as refused:
                self._refuse(refused)
            except Exception:
                log.exception("a delta of the config service cannot be applied; its export is fetched")
                self._poll.ask(export=True)
            else:
                self._metrics.deltas.labels("applied").inc()

    async def _take(self, payload: bytes) -> None:
        """Apply a delta.

        Raises:
            RefusedDelta: It is not applied.
        """
        delta, state = read_delta(payload, self._trusted), self.state
        async with state.turn:
            held = state.held
            if held is None:
                raise RefusedDelta("gap", "nothing is known yet")
            state.put(await on_thread("sie-configs", lambda: apply_delta(held, delta, self._serves)))
        what = "removed" if delta.deleted else "changed"
        log.info("model configs: epoch %d, %s %s", delta.epoch, delta.model_id, what)

    def _refuse(self, refused: RefusedDelta) -> None:
        self._metrics.deltas.labels(refused.reason).inc()
        if refused.reason not in _USUAL:
            log.warning("a delta is not applied (%s): %s", refused.reason, refused)
        if refused.reason not in _WITHOUT_LOOK:
            self._poll.ask(export=refused.reason != "old_epoch")
