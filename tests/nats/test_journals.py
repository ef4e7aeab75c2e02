"""A journal at a real broker: read while it is written, and by the rights of its user alone."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

import pytest
from sie_nats.broker.permissions import broker_config

from sie_core.contracts import Access, BrokerPlan, QueueError
from tests.nats.conftest import Broker, transport

BOUND_S = 60


async def test_a_reading_in_the_middle_of_a_flood_misses_no_key(broker: Broker) -> None:
    one, other = transport(broker.url, storage="memory"), transport(broker.url, storage="memory")
    await one.open()
    await other.open()
    try:
        writing, reading = await one.journal("flood"), await other.journal("flood")
        keys = [f"key.{number}" for number in range(600)]
        for last, key in enumerate(keys):
            await writing.append(key, b"first", after=last)

        read = asyncio.Event()

        async def flood() -> int:
            last = len(keys)
            for key in itertools.cycle(keys):  # the keys that the reader has still to come to move to the end
                last = await writing.append(key, b"second", after=last)
                if read.is_set():
                    return last
            raise AssertionError

        async with asyncio.timeout(BOUND_S):
            flooding = asyncio.create_task(flood())
            for _ in range(5):
                assert {each.key for each in (await reading.read()).records} == set(keys)
            read.set()
            last = await flooding
            assert (await reading.read()).last == last
    finally:
        await one.close()
        await other.close()


async def test_a_user_appends_to_its_own_journal_only(tmp_path: Path) -> None:
    users = (
        Access("config", declares_journals=("kept",), writes_journals=("kept",)),
        Access("gateway.one", hears=("sie.>",)),
    )
    passwords = {"config": "c", "gateway.one": "g"}
    broker = Broker(tmp_path)
    broker.config.write_text(
        broker_config(BrokerPlan(users, passwords, "127.0.0.1", port=broker.port, folder=tmp_path / "js"))
    )
    broker.start()
    try:
        config = transport(broker.url, user="config", password="c")
        foreign = transport(broker.url, user="gateway.one", password="g")
        await config.open()
        await foreign.open()
        journal = await config.journal("kept")
        assert await journal.append("a", b"1", after=0) == 1
        assert [each.payload for each in (await journal.read()).records] == [b"1"]
        for name in ("kept", "other"):
            with pytest.raises(QueueError) as refused:
                await foreign.journal(name)
            assert refused.value.failure == "DENIED"
        await config.close()
        await foreign.close()
    finally:
        broker.kill()
