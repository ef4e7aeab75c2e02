"""A cluster of three brokers: requests outlive the loss of any one of them, and a process shrinks no queue."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import nats
import pytest
from pydantic import SecretStr
from sie_cluster.queue.broker import ensure_queue
from sie_cluster.queue.subjects import work_queue

from sie_core.contracts import QueueError, QueueTransport
from sie_core.serving.listening import reserve
from tests.cluster.in_process import Cluster, running
from tests.nats.conftest import Broker, transport

QUEUE = work_queue("_default")
URL = "/v1/encode/sie-fake/embedder"
BOUND_S = 60.0
PATIENT = {"Prefer": "wait=30"}
"""Headers of a client that waits for the load of the model."""


class Brokers:
    """Three brokers of one cluster, each under its number as name."""

    def __init__(self, folder: Path, routes: list[int]) -> None:
        self.all: list[Broker] = []
        urls = ", ".join(f"nats-route://127.0.0.1:{port}" for port in routes)
        for number, port in enumerate(routes):
            own = folder / str(number)
            own.mkdir()
            listen = f'cluster {{ name: sie, listen: "127.0.0.1:{port}", routes: [{urls}] }}'
            self.all.append(Broker(own, f'server_name: "{number}"\n{listen}\n'))

    @property
    def url(self) -> str:
        return ",".join(each.url for each in self.all)

    async def ask(self, subject: str) -> dict[str, Any]:
        """Ask JetStream until it has leaders and answers."""
        client = await nats.connect([each.url for each in self.all if each.process is not None])
        try:
            async with asyncio.timeout(BOUND_S):
                while True:
                    with contextlib.suppress(nats.errors.Error, asyncio.TimeoutError):
                        answer = json.loads((await client.request(f"$JS.API.{subject}", b"", timeout=1)).data)
                        if answer.get("error", {}).get("code", 0) < 500:
                            return dict(answer)
                    await asyncio.sleep(0.1)
        finally:
            await client.close()

    async def copies(self, replicas: str, stream: str, make: Callable[[QueueTransport], Awaitable[object]]) -> int:
        """Have a process with this setting make a stream; count its copies afterwards."""
        one = transport(self.url, replicas=replicas)
        await one.open()
        await asyncio.wait_for(make(one), BOUND_S)
        await one.close()
        return int((await self.ask(f"STREAM.INFO.{stream}"))["config"]["num_replicas"])

    async def leader(self) -> Broker:
        """Find the broker that leads the queue once all three follow it."""
        async with asyncio.timeout(BOUND_S):
            while True:
                told = (await self.ask(f"STREAM.INFO.{QUEUE.name}")).get("cluster", {})
                if told.get("leader") and sum(bool(each.get("current")) for each in told.get("replicas", ())) == 2:
                    return self.all[int(told["leader"])]
                await asyncio.sleep(0.1)


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[Brokers]:
    with ExitStack() as reserved:
        made = Brokers(tmp_path, [reserved.enter_context(reserve("127.0.0.1", 0))[1] for _ in range(3)])
        for each in made.all:
            each.start()
        try:
            yield made
        finally:
            for each in made.all:
                each.kill()


@asynccontextmanager
async def asked(cluster: Cluster, clients: int = 8) -> AsyncIterator[Counter[str]]:
    """Have clients ask all the time, and count what they were answered."""
    answers: Counter[str] = Counter()
    ends = asyncio.Event()

    async def ask(number: int) -> None:
        while not ends.is_set():
            reply = await cluster.client.post(URL, json={"items": [{"text": f"text {number}"}]}, headers=PATIENT)
            answers["ok" if reply.status_code == 200 else reply.text] += 1

    tasks = [asyncio.create_task(ask(number)) for number in range(clients)]
    try:
        yield answers
    finally:
        ends.set()
        await asyncio.wait_for(asyncio.gather(*tasks), BOUND_S)


async def more(answers: Counter[str], count: int = 40) -> None:
    """Wait until so many more requests were answered."""
    until = answers.total() + count
    async with asyncio.timeout(BOUND_S):
        while answers.total() < until:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.01)


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_requests_outlive_the_loss_of_the_broker_that_leads_their_queue(brokers: Brokers, tmp_path: Path) -> None:
    await brokers.ask("INFO")
    chosen = {"nats_url": SecretStr(brokers.url), "nats_replicas": 3, "plugins": ("fake", "nats")}
    async with running(tmp_path, **chosen) as cluster, asked(cluster) as answers:
        await more(answers)
        for _ in range(2):
            leader = await brokers.leader()
            leader.kill()
            await more(answers)
            leader.start()
            await brokers.leader()
            await brokers.ask(f"STREAM.LEADER.STEPDOWN.{QUEUE.name}")
            await more(answers)
    assert set(answers) == {"ok"}


async def test_a_process_with_other_settings_leaves_a_queue_as_it_is(brokers: Brokers) -> None:
    await brokers.ask("INFO")
    assert [await brokers.copies(each, QUEUE.name, lambda one: ensure_queue(one, QUEUE)) for each in "31"] == [3, 3]


async def test_a_store_gets_more_copies_once_there_are_more_brokers_and_loses_none(brokers: Brokers) -> None:
    await brokers.ask("INFO")
    make = lambda one: one.key_value("store")  # noqa: E731
    assert [await brokers.copies(each, "KV_store", make) for each in "131"] == [1, 3, 3]


async def test_a_queue_without_a_majority_of_its_brokers_is_not_taken_for_an_empty_one(brokers: Brokers) -> None:
    await brokers.ask("INFO")
    one = transport(brokers.url, replicas="3")
    await one.open()
    await asyncio.wait_for(ensure_queue(one, QUEUE), BOUND_S)
    leader = await brokers.leader()
    for each in brokers.all:
        if each is not leader:
            each.kill()
    told = ""
    async with asyncio.timeout(BOUND_S):
        while "hears most brokers" not in told:
            try:
                assert await one.backlog(QUEUE.name) == {}, "it leads until it misses the others"
            except QueueError as error:
                told = str(error)
    await one.close()
