"""Watches of a store outlive what befalls its broker, and a watch that sleeps asks it nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import nats
import pytest
from sie_nats.stores import watching

from sie_core.contracts import Entry, KeyValue, QueueTransport
from tests.nats.conftest import Broker, transport

WAIT_S = 30.0


class Told:
    """What a watch tells."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.times = 0

    def take(self, entries: Mapping[str, Entry]) -> None:
        self.values = {key: entry.value for key, entry in entries.items()}
        self.times += 1

    async def until(self, **wanted: bytes) -> None:
        async with asyncio.timeout(WAIT_S):
            while self.values != wanted:  # noqa: ASYNC110 - a failed wait shows what came
                await asyncio.sleep(0.01)


async def opened(broker: Broker, **settings: str) -> tuple[QueueTransport, KeyValue]:
    one = transport(broker.url, **settings)
    await one.open()
    return one, await one.key_value("watched")


async def restart(broker: Broker, *transports: QueueTransport) -> None:
    broker.kill()
    async with asyncio.timeout(WAIT_S):
        while any(each.state == "connected" for each in transports):  # noqa: ASYNC110 - a state of another process
            await asyncio.sleep(0.01)
        broker.start()
        while any(each.state != "connected" for each in transports):  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)


async def test_a_watch_goes_on_after_its_broker_was_killed(own_broker: Broker) -> None:
    (one, store), (other, writing), told = await opened(own_broker), await opened(own_broker), Told()
    await writing.put("before", b"1")
    await store.watch(told.take)
    await restart(own_broker, one, other)
    await writing.put("after", b"2", ttl_s=4)  # a watch is made anew before it ends
    await told.until(before=b"1", after=b"2")
    await told.until(before=b"1")
    await one.close()
    await other.close()


async def test_a_watch_is_told_of_a_store_that_was_lost_and_made_again(own_broker: Broker) -> None:
    """Its revisions begin again, below those that were told."""
    (one, store), told = await opened(own_broker, storage="memory"), Told()
    for number in range(20):
        await store.put("key", b"%d" % number)
    await store.watch(told.take)
    await told.until(key=b"19")
    await restart(own_broker, one)
    again = await one.key_value("watched")
    await again.put("key", b"new")
    await told.until(key=b"new")
    await one.close()


async def test_what_a_watch_has_missed_it_finds_by_itself(own_broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "ANEW_S", (0.2, 0.4))
    (one, store), told = await opened(own_broker), Told()
    watch = await store.watch(told.take)
    await watch._subscription.unsubscribe()  # type: ignore[attr-defined]
    await store.put("key", b"1")
    await told.until(key=b"1")
    assert told.times == 2, "it tells what has not changed"
    await one.close()


async def test_a_store_of_an_older_release_is_made_to_tell(own_broker: Broker) -> None:
    client = await nats.connect(own_broker.url)
    await client.jetstream().create_key_value(bucket="watched")
    await client.close()
    (one, store), told = await opened(own_broker), Told()
    await store.watch(told.take)
    await store.put("key", b"1", ttl_s=1)
    await told.until(key=b"1")
    await told.until()
    await one.close()


async def test_a_hundred_watches_that_sleep_ask_the_broker_nothing(own_broker: Broker) -> None:
    """But for a reading each minute; a change costs no question either."""
    (one, store), told = await opened(own_broker), Told()
    for _ in range(100):
        await store.watch(told.take, "key")
    asked: list[str] = []

    async def count(message: Any) -> None:
        asked.append(message.subject)

    client = await nats.connect(own_broker.url)
    await client.subscribe("$JS.API.>", cb=count)
    await client.flush()
    answer = await client.request("$JS.API.STREAM.INFO.KV_watched", b"")
    assert json.loads(answer.data)["state"]["consumer_count"] == 0
    before = told.times
    await store.put("key", b"1")
    async with asyncio.timeout(WAIT_S):
        while told.times < before + 100:  # noqa: ASYNC110 - a failed wait shows how many
            await asyncio.sleep(0.01)
    await asyncio.sleep(2.0)
    assert asked == ["$JS.API.STREAM.INFO.KV_watched"], "and that was this test's own"
    await client.close()
    await one.close()
