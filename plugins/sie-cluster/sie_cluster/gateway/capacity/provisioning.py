"""What becomes of a request that has no worker: it is counted as demand, and held or told to come back."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable

from sie_cluster.gateway.capacity.demand import Demand
from sie_cluster.gateway.capacity.lanes import Labels, Lane, Lanes
from sie_cluster.queue.subjects import ANY_PROFILE, DEFAULT_RESOURCE_POOL
from sie_core.concurrency.tasks import within
from sie_core.contracts import InferenceError, LoadWait

UNSURE_S = 1.0
"""Once the broker is reached, workers that are asked for their heartbeats are heard within that time."""


class Provisioning:
    """The requests of one gateway that wait for workers. Used on the event loop.

    Args:
        connected_at: Gives the monotonic time when the broker was last reached.
    """

    def __init__(self, connected_at: Callable[[], float]) -> None:
        self._connected_at = connected_at
        self.demand = Demand()
        self.lanes = Lanes(self._served)
        self.refused: Counter[Labels] = Counter()
        """The requests that were told to come back."""
        self._news = asyncio.Event()
        """Set with the next lane that got a worker, and then another one."""

    async def wait(self, lane: Lane, wait: LoadWait, left_s: float) -> None:
        """Wait for a worker as long as a request may be held.

        Args:
            lane: That has none.
            wait: How long the request waits for a load; one that waits for short loads alone is not held.
            left_s: Until its deadline.

        Raises:
            InferenceError: `PROVISIONING`: none has come.
        """
        unsure_s = self._connected_at() + UNSURE_S - time.monotonic()
        if unsure_s > 0:
            await self._worker(lane, min(left_s, unsure_s))
            if self.lanes.is_served(lane):
                return
        self.demand.add(lane)
        held_s = 0.0 if wait.if_soon else min(left_s, wait.seconds)
        if held_s > 0:
            with wait.place() as may_wait:
                if may_wait:
                    await self._worker(lane, held_s)
        if not self.lanes.is_served(lane):
            self.refused[lane.labels] += 1
            raise self._error(lane)

    async def _worker(self, lane: Lane, seconds: float) -> None:
        async def come() -> None:
            while not self.lanes.is_served(lane):
                await self._news.wait()

        await within(come(), seconds)

    def _served(self, lane: Lane) -> None:
        self.demand.served(lane)
        self._news.set()
        self._news = asyncio.Event()

    def _error(self, lane: Lane) -> InferenceError:
        of_profile = "" if lane.profile == ANY_PROFILE else f" of the machine profile {lane.profile!r}"
        of_pool = "" if lane.resource_pool == DEFAULT_RESOURCE_POOL else f" in the pool {lane.resource_pool!r}"
        return InferenceError(
            "PROVISIONING",
            f"No worker{of_profile} of the bundle {lane.bundle!r}{of_pool} takes work yet; retry.",
            details={"machine_profile": lane.profile, "bundle": lane.bundle},
        )
