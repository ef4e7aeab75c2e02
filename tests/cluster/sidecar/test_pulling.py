"""Whose work a sidecar pulls: of more models than it may, those that were asked for last."""

from __future__ import annotations

import asyncio

import pytest

from sie_core.cluster.queue.subjects import needed_subject, work_queue, work_subject
from sie_core.cluster.sidecar.queue import pulling
from sie_core.contracts import Delivery, Work
from sie_core.defaults.in_process_queue import sie_queue_transports
from sie_core.settings import Settings
from tests.cluster.sidecar.placed import pulls_alone

BOUND_S = 30.0


async def test_a_model_beyond_the_most_is_pulled_and_the_one_asked_for_longest_ago_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pulling, "MOST_KEYS", 2)
    (factory,) = sie_queue_transports()
    transport, settings = factory.create("memory://pulls", {}), Settings()
    await transport.open()
    await transport.declare_queue(work_queue(settings.pool))
    came: asyncio.Queue[Delivery] = asyncio.Queue()
    pulls = pulls_alone(transport, settings, lambda delivery, pull: came.put_nowait(delivery))
    await pulls.open()
    pulls.take()
    subjects = [work_subject(f"test/{name}", settings.pool, settings.bundle) for name in "abc"]
    for subject in (subjects[0], subjects[1], subjects[0], subjects[2]):
        await transport.send(needed_subject(settings.pool), subject.encode())
    async with asyncio.timeout(BOUND_S):
        while set(pulls._pulls) != {subjects[0], subjects[2]}:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0)
        await pulls.settled()
        for number in (1, 2, 0):
            await transport.publish(Work(subjects[number], f"{number}", b""), lambda _: None)
        deliveries = [await came.get() for _ in range(2)]
        assert {delivery.subject for delivery in deliveries} == {subjects[0], subjects[2]}
        deliveries[0].ack()
        look = asyncio.create_task(pulls.look())  # finds that b waits, and a or c do not
        assert (await came.get()).subject == subjects[1]
    look.cancel()
    await transport.close()
