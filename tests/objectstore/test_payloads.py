"""Payloads of a cluster in a real bucket: whole, removed once fetched, swept where they were left."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

import pytest
from sie_cluster.queue.payloads.fetching import Fetcher
from sie_cluster.queue.payloads.holding import Holder
from sie_cluster.queue.payloads.store import PayloadStore
from sie_fake.broker.queue import in_process_transports
from sie_objectstore.store import BucketStore

from sie_core.contracts import QueueTransport
from tests.objectstore.conftest import Impatient
from tests.objectstore.proxy import Faults

SIZE = 6_000_007


@pytest.fixture
async def queue() -> AsyncIterator[QueueTransport]:
    (factory,) = in_process_transports()
    transport = factory.create("memory://payloads", {})
    await transport.open()
    yield transport
    await transport.close()


async def test_payloads_pass_through_a_bucket_and_leave_nothing(store: BucketStore, queue: QueueTransport) -> None:
    payloads, payload = PayloadStore(store), bytearray(os.urandom(SIZE))
    holder = Holder(queue, 1 << 24, payloads)
    offer = await holder.offer(memoryview(payload)[7:])  # type: ignore[arg-type]  # as large frames are handed on
    assert (holder.held_bytes, holder.stored_bytes) == (0, SIZE - 7)
    assert await Fetcher(queue, payloads).fetch(offer) == payload[7:]
    async with asyncio.timeout(30):
        while list(store.list("payloads")):  # noqa: ASYNC110 - a bucket tells nobody
            await asyncio.sleep(0.02)
    await holder.offer(b"left behind")
    assert await payloads.sweep(leftover_s=60) == 0
    assert await payloads.sweep(leftover_s=0) == 1
    assert list(store.list("payloads")) == []


async def test_a_bucket_that_is_away_costs_frames_and_no_request(
    impatient: Impatient, bucket: str, proxy: Faults, queue: QueueTransport
) -> None:
    proxy.gone = True
    payloads = PayloadStore(impatient(bucket))
    holder = Holder(queue, 1 << 24, payloads)
    assert await Fetcher(queue, payloads).fetch(await holder.offer(b"payload")) == b"payload"
