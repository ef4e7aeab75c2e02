"""Has the broker count what all gateways have in a queue, while this one has a good part of what may wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from sie_core.cluster.gateway.capacity.admission import Admission
from sie_core.cluster.queue.subjects import work_queue
from sie_core.contracts import InferenceError, QueueError, QueueTransport

EVERY_S = 0.5


async def count_queues(admission: Admission, transport: Callable[[], QueueTransport]) -> None:
    """Do so until cancelled."""
    while True:
        await asyncio.sleep(EVERY_S)
        for pool in admission.to_count():
            queue = work_queue(pool)
            try:
                admission.counted(pool, await transport().backlog(queue.name, queue.subjects[0]))
            except (QueueError, InferenceError):
                break  # the broker is away, and nothing is sent
