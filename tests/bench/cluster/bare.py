"""The bare transport: a message to the queue, pulled, answered to an inbox, acknowledged. No HTTP, no engine."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from statistics import median

from sie_cluster.queue.subjects import work_consumer, work_queue, work_subject
from sie_cluster.settings import ClusterSettings

from sie_core.contracts import Delivery, Message, QueueTransport, Work
from sie_core.defaults import BUILTINS
from sie_core.plugins import discover

BUNDLE = "bench"
"""No worker of the cluster pulls its work."""
PAYLOAD = bytes(300)
ANSWER = bytes(700)


async def round_trip_s(folder: Path, count: int) -> float:
    """Return the median of round trips, one at a time, through the broker of a running cluster.

    Args:
        folder: The cluster's, with the broker's configuration.
        count: How many.
    """
    gateway, worker = [await _connect(folder, user) for user in ("gateway", "worker.worker-1")]
    async with asyncio.timeout(120):
        return await _measure(gateway, worker, count)


async def _connect(folder: Path, name: str) -> QueueTransport:
    config = json.loads((folder / "nats.conf").read_text())
    user = next(each for each in config["authorization"]["users"] if each["user"] == name)
    factory = discover(ClusterSettings(), BUILTINS).queue_transports["nats"]
    url = f"nats://{config['host']}:{config['port']}"
    transport = factory.create(url, {"user": name, "password": user["password"]})
    await transport.open()
    return transport


async def _measure(gateway: QueueTransport, worker: QueueTransport, count: int) -> float:
    subject = work_subject("bare", "_default", BUNDLE)
    consumer = work_consumer("_default", subject, 5.0, 20)
    await gateway.declare_queue(work_queue("_default"))
    await worker.declare_consumer(consumer)
    loop = asyncio.get_running_loop()
    answered: asyncio.Future[None] = loop.create_future()
    sending: set[asyncio.Task[None]] = set()

    def came(message: Message) -> None:
        answered.set_result(None)

    def pulled(delivery: Delivery) -> None:
        async def answer() -> None:
            await worker.send(inbox.subject, ANSWER)
            delivery.ack()
            pull.add_credit(1)

        task = loop.create_task(answer())
        sending.add(task)
        task.add_done_callback(sending.discard)

    inbox = await gateway.inbox(came)
    pull = await worker.pull(consumer.queue, consumer.name, pulled, credit=48)
    seconds = []
    for number in range(count):
        answered = loop.create_future()
        started = time.perf_counter()
        await gateway.publish(Work(subject, f"{inbox.subject}.{number}", PAYLOAD, ttl_s=60.0), lambda _: None)
        await answered
        seconds.append(time.perf_counter() - started)
    await pull.close()
    await gateway.close()
    await worker.close()
    return median(seconds)
