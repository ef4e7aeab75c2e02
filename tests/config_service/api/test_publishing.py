"""What followers are told of a write, and what a write says where they cannot be told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest
from pydantic import SecretStr
from sie_cluster.config_service import publisher as publishing
from sie_cluster.config_service.publisher import Publisher
from sie_cluster.config_service.store.logs import JournalLog
from sie_cluster.configs.delta import read_delta
from sie_cluster.queue.broker import transport_maker
from sie_cluster.queue.subjects import ALL_MODELS, EVERY_CONFIG, config_subject, dead_queue, work_queue
from sie_cluster.settings import ClusterSettings

from sie_core.contracts import Message, QueueError, QueueFailure, QueueTransport
from tests.config_service.api.serving import TINY, Served, plugins, serving

BOUND_S = 20.0
MODELS = "/v1/configs/models"
PATH = f"{MODELS}/acme/tiny"


@dataclass
class Told:
    """A service with a broker, and what a follower hears."""

    served: Served
    heard: list[Message]
    own: QueueTransport
    """The service's connection."""
    other: QueueTransport
    """A follower's."""
    failing: list[QueueFailure | None]
    """How the next messages of the service fail."""

    async def until(self, holds: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(BOUND_S):
            while not await holds():  # noqa: ASYNC110 - what is waited for tells nobody
                await asyncio.sleep(0.01)

    async def has_queues(self, pool: str) -> bool:
        """Whether the queues of a pool are there."""
        try:
            for queue in (work_queue(pool), dead_queue(pool)):
                await self.other.backlog(queue.name)
        except QueueError:
            return False
        return True

    async def hears(self, messages: int) -> bool:
        """Whether so many were heard."""
        return len(self.heard) == messages


@pytest.fixture
async def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Told]:
    monkeypatch.setattr(publishing, "LOOK_S", 0.01)
    async with telling(tmp_path) as told:
        yield told


@asynccontextmanager
async def telling(folder: Path) -> AsyncIterator[Told]:
    make = transport_maker(ClusterSettings(nats_url=SecretStr(f"memory://{folder}")), plugins())
    own, other, heard, failing = make(), make(), list[Message](), list[QueueFailure | None]()
    send = own.send

    async def sending(subject: str, payload: bytes, reply: str = "") -> None:
        if failing and (failure := failing.pop(0)):
            raise QueueError(failure, "not now")
        await send(subject, payload, reply)

    own.send = sending  # type: ignore[method-assign]
    await other.open()
    await other.subscribe(EVERY_CONFIG, heard.append)
    publisher = Publisher(lambda: own, "sie-config-a", "_default")
    journal = JournalLog(lambda: publisher.transport, asyncio.get_running_loop())
    async with serving(folder, publisher=publisher, publish=publisher.publish, log=journal, reads=False) as served:
        task = asyncio.create_task(publisher.run(served.service))
        async with asyncio.timeout(BOUND_S):
            await publisher.heard.wait()
        await asyncio.to_thread(served.service.read_on)
        yield Told(served, heard, own, other, failing)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await other.close()


async def test_each_change_is_told_to_all_and_to_the_followers_of_its_bundles(told: Told) -> None:
    client, registry = told.served.client, lambda: told.served.service.registry
    q: dict[str, Any] = {"sie_id": "acme/tiny", "profiles": {"q": {"extends": "default"}}}
    for epoch, (method, path, body, added) in enumerate(
        [
            ("POST", MODELS, TINY, ["default"]),
            ("POST", MODELS, q, ["q"]),
            ("PUT", PATH, {**TINY, "max_sequence_length": 7}, []),
            ("DELETE", PATH, None, []),
        ],
        start=1,
    ):
        reply = await client.request(method, path, json=body)
        assert reply.json()["warnings"] == []
        await told.until(partial(told.hears, 2 * epoch))
        messages = told.heard[-2:]
        assert [each.subject for each in messages] == [ALL_MODELS, config_subject("fakes")]
        for message in messages:
            delta = read_delta(message.payload, ["sie-config"])
            assert (delta.epoch, delta.previous_epoch, delta.model_id) == (epoch, epoch - 1, "acme/tiny")
            assert (delta.deleted, orjson.loads(message.payload)["profiles_added"]) == (method == "DELETE", added)
            assert delta.bundle_config_hashes == registry().config_hashes
            assert bool(delta.model_config_) == (method != "DELETE")
    assert await unchanged(told, "POST", MODELS, {**TINY, "sie_id": "acme/base"}) == 409
    assert await unchanged(told, "DELETE", PATH, None) == 200


async def unchanged(told: Told, method: str, path: str, body: object) -> int:
    before = len(told.heard)
    status = (await told.served.client.request(method, path, json=body)).status_code
    assert len(told.heard) == before
    return status


async def test_with_the_broker_away_nothing_is_written_and_reads_go_on(told: Told) -> None:
    await told.own.close()
    kept = told.served.kept()
    for method, path in (("POST", MODELS), ("PUT", PATH), ("DELETE", PATH)):
        reply = await told.served.client.request(method, path, json=TINY)
        assert (reply.status_code, reply.json()["error"]["error"]) == (503, "nats_unavailable")
        assert reply.json()["error"]["code"] == "QUEUE_UNAVAILABLE"
        assert "retry-after" in reply.headers
    assert told.served.kept() == kept
    assert (await told.served.client.get("/v1/configs/epoch")).json()["epoch"] == 0
    assert (await told.served.client.get("/readyz")).status_code == 200


@pytest.mark.parametrize(
    ("failing", "warning", "heard"),
    [
        (["UNAVAILABLE", "UNAVAILABLE"], "nats_publish_failed: not now", 0),
        ([None, "UNAVAILABLE"], "nats_publish_partial: not now", 1),
    ],
)
async def test_a_change_that_is_kept_and_not_told_is_a_success_with_a_warning(
    told: Told, failing: list[QueueFailure | None], warning: str, heard: int
) -> None:
    told.failing[:] = failing
    reply = await told.served.client.post(MODELS, json=TINY, headers={"Idempotency-Key": "k"})
    assert (reply.status_code, reply.json()["warnings"]) == (201, [warning])
    assert (await told.served.client.get("/v1/configs/epoch")).json()["epoch"] == 1
    assert len(told.heard) == heard
    again = await told.served.client.post(MODELS, json=TINY, headers={"Idempotency-Key": "k"})
    assert again.status_code == 201


async def test_the_queues_of_pools_are_made_those_that_come_later_too(told: Told) -> None:
    await told.until(partial(told.has_queues, "_default"))
    assert not await told.has_queues("l4")
    assert (await told.served.client.post(MODELS, json={**TINY, "pool": "L4"})).status_code == 201
    await told.until(partial(told.has_queues, "l4"))
