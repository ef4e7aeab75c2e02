"""The config service's connection to the broker: tells followers of changes, hears others', makes the pools' queues.

What is not told is no loss: followers look at the epoch, and fetch the export.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from sie_cluster.config_service.results import Change
from sie_cluster.config_service.service import ConfigService
from sie_cluster.configs.delta import write_deltas
from sie_cluster.queue.access import queues
from sie_cluster.queue.broker import Make, open_transport
from sie_cluster.queue.subjects import ALL_MODELS
from sie_core.contracts import ConnectionState, InferenceError, QueueError, QueueTransport

log = logging.getLogger(__name__)

PUBLISH_S: Final = 5.0
"""Longest time that a write waits for its deltas to be handed over."""
LOOK_S: Final = 1.0
"""Between looks at whether there is a pool without a queue."""


class Publisher:
    """One connection to the broker. It is made on the event loop that `run` runs on.

    Args:
        make: Makes transports.
        producer: The name that deltas are told under.
        pool: The queue pool of models that name none.
        failed: Called for each change that is not told, or not to all.
    """

    def __init__(self, make: Make, producer: str, pool: str, failed: Callable[[], None] = lambda: None) -> None:
        self._make, self._producer, self._pool, self._failed = make, producer, pool, failed
        self._loop = asyncio.get_running_loop()
        self.transport: QueueTransport | None = None
        """Open; None while the broker was not reached."""
        self.heard = asyncio.Event()
        """Set when a service tells of a change, and when the broker is reached again."""
        self._declared: set[str] = set()
        self._again = False

    @property
    def connected(self) -> bool:
        """Whether messages can be sent now."""
        return self.transport is not None and self.transport.state == "connected"

    def check(self) -> None:
        """Refuse a write that nobody could be told of.

        Raises:
            InferenceError: `QUEUE_UNAVAILABLE`.
        """
        if not self.connected:
            message = "The broker of SIE_NATS_URL is away, so that followers could not be told: nothing was written."
            raise InferenceError("QUEUE_UNAVAILABLE", message, details={"error": "nats_unavailable"})

    async def run(self, service: ConfigService) -> None:
        """Connect, however long the broker is away; then make the queues of what `service` serves.

        Raises:
            QueueError: `DENIED`: the broker refuses this user. `CONFIG`: the queue of the service's own pool differs
                and cannot be changed.
        """
        transport = await open_transport(self._make, self._changed)
        await transport.subscribe(ALL_MODELS, lambda _: self.heard.set())
        self.transport, served = transport, None
        self.heard.set()
        try:
            while True:
                if self._again:  # a broker that was started again may have lost what it held
                    self._again, served = False, None
                    self._declared.clear()
                    self.heard.set()
                await self._declare(self._pool, transport)
                if service.registry is not served:
                    served = service.registry
                    for pool in {route.pool for route in served.routes.values()}:
                        await self._declare(pool, transport)
                await asyncio.sleep(LOOK_S)
        finally:
            await transport.close()

    def publish(self, change: Change) -> str | None:
        """Tell of a change, from any other thread; return what went wrong, for the answer's `warnings`."""
        transport = self.transport
        if transport is None:
            return self._warning("nats_publish_failed: the broker is away")
        messages = write_deltas(
            change.registry,
            change.model_id,
            producer=self._producer,
            affected_bundles=change.affected_bundles,
            profiles_added=change.profiles_added,
            source=change.source,
            most_bytes=transport.max_payload,
        )
        future = asyncio.run_coroutine_threadsafe(_send(transport, messages), self._loop)
        try:
            sent, problem = future.result(PUBLISH_S)
        except TimeoutError:
            future.cancel()
            return self._warning(f"nats_publish_failed: the broker took more than {PUBLISH_S:g} s")
        if problem is None:
            return None
        return self._warning(f"nats_publish_{'partial' if sent else 'failed'}: {problem}")

    async def _declare(self, pool: str, transport: QueueTransport) -> None:
        """Make the queues of a pool, once; where this user may not, that is told, unless it is the service's own."""
        if pool in self._declared:
            return
        try:
            for queue in queues([pool]):
                await transport.declare_queue(queue)
        except QueueError as error:
            if error.failure == "UNAVAILABLE":
                return
            if pool == self._pool:
                raise
            log.warning("the queues of pool %s were not made, and its models have no workers: %s", pool, error)
        self._declared.add(pool)

    def _changed(self, state: ConnectionState) -> None:
        log.info("the connection to the broker is %s", state)
        self._again = state == "connected"

    def _warning(self, text: str) -> str:
        self._failed()
        log.warning("%s; followers find the change by the epoch", text)
        return text


async def _send(transport: QueueTransport, messages: Sequence[tuple[str, bytes]]) -> tuple[int, QueueError | None]:
    """Send what can be sent; return how many that were, and the last failure."""
    sent, problem = 0, None
    for subject, payload in messages:
        try:
            await transport.send(subject, payload)
            sent += 1
        except QueueError as error:
            problem = error
    return sent, problem
