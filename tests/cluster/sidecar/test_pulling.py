"""Whose work a sidecar pulls: of more models than it may, those that were asked for last."""

from __future__ import annotations

import asyncio

import pytest
from sie_cluster.queue.subjects import needed_subject, waiting_subject, work_queue, work_subject
from sie_cluster.settings import ClusterSettings
from sie_cluster.sidecar.queue import credit as credits_
from sie_cluster.sidecar.queue import pulling
from sie_cluster.sidecar.queue.credit import Credit
from sie_fake.broker.queue import in_process_transports

from sie_core.contracts import Delivery, Pull, Work
from tests.cluster.sidecar.placed import pulls_alone

BOUND_S = 30.0


async def test_a_model_beyond_the_most_is_pulled_and_the_one_asked_for_longest_ago_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pulling, "MOST_KEYS", 2)
    (factory,) = in_process_transports()
    transport, settings = factory.create("memory://pulls", {}), ClusterSettings()
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
        await transport.send(waiting_subject(settings.pool), subjects[1].encode())
        assert (await came.get()).subject == subjects[1]
    await transport.close()


async def test_a_worker_that_pulls_many_models_of_large_pictures_holds_a_bounded_number_of_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    models, each, bound = 10, 100_000, 2_000_000
    monkeypatch.setattr(credits_, "MOST_COST", bound)
    (factory,) = in_process_transports()
    transport, settings = factory.create("memory://pictures", {}), ClusterSettings()
    await transport.open()
    await transport.declare_queue(work_queue(settings.pool))
    subjects = [work_subject(f"test/{number}", settings.pool, settings.bundle) for number in range(models)]
    for number in range(40 * models):
        await transport.publish(Work(subjects[number % models], f"{number}", bytes(each)), lambda _: None)
    credit = Credit(settings, asyncio.get_running_loop().call_later)
    held: list[tuple[Delivery, Pull]] = []
    most = 0

    def take(delivery: Delivery, pull: Pull) -> None:
        nonlocal most
        held.append((delivery, pull))
        most = max(most, len(held))
        credit.take(pull, each)

    pulls = pulls_alone(transport, settings, take, credit)
    await pulls.open()
    pulls.take()
    for subject in subjects:
        await transport.send(needed_subject(settings.pool), subject.encode())
    async with asyncio.timeout(BOUND_S):
        while await transport.backlog(work_queue(settings.pool).name):
            await asyncio.sleep(0.001)
            for delivery, pull in held:
                delivery.ack()
                credit.give(pull, each, idle=False)
            held.clear()
    assert bound // 2 <= most * each <= bound + models * each
    await transport.close()
