"""Slices larger than a message count until the adapter process has them; a client that leaves ends the fetching."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from sie_cluster.messages.requests import pack_item, pack_shared
from sie_cluster.messages.work import encode_work
from sie_cluster.queue.payloads.fetching import Fetcher
from sie_cluster.queue.payloads.holding import Holder
from sie_cluster.queue.payloads.offers import FRAME_BYTES
from sie_cluster.sidecar.held import Slice
from sie_cluster.sidecar.queue.large_slices import LargeSlices
from sie_fake.broker.queue import in_process_transports

from sie_core.contracts import InferenceRequest, Item, QueueError
from tests.cluster.sidecar.slices import slice_of

BOUND_S = 4.0
"""Less than a holder that is gone is waited for."""


@dataclass
class Ends:
    """A gateway that holds slices, and the large slices of a sidecar."""

    holder: Holder
    fetcher: Fetcher

    async def held(self, number: int) -> Slice:
        text = Item(text="a" * FRAME_BYTES)
        plain = slice_of(number).head
        shared = pack_shared(InferenceRequest("m", "encode", [text], request_id="r"))
        offer = await self.holder.offer(encode_work(plain, shared, [pack_item(text)]))
        return slice_of(number, offer=offer.to_map())


def fetching(slices: LargeSlices, held: Slice) -> asyncio.Task[bytes]:
    return asyncio.create_task(slices.fetch(held, lambda subject: True))


@pytest.fixture
async def ends() -> AsyncIterator[Ends]:
    (factory,) = in_process_transports()
    one, other = (factory.create("memory://large", {}) for _ in range(2))
    await one.open()
    await other.open()
    yield Ends(Holder(one, 1 << 30), Fetcher(other))
    await one.close()
    await other.close()


async def test_a_slice_counts_until_the_adapter_process_has_it(ends: Ends) -> None:
    slices = LargeSlices(ends.fetcher, FRAME_BYTES + 1000)
    first, second = [await ends.held(number) for number in (1, 2)]
    coming, waiting = fetching(slices, first), fetching(slices, second)
    async with asyncio.timeout(BOUND_S):
        await coming
        assert (waiting.done(), slices.held_bytes) == (False, first.head.offer and first.head.offer["bytes"])
        slices.leave(first)
        await waiting
    slices.leave(second)
    assert slices.held_bytes == 0


async def test_nothing_is_fetched_for_who_has_left(ends: Ends) -> None:
    """Its gateway may be gone: who waits for its frames keeps others waiting."""
    slices = LargeSlices(ends.fetcher, 1 << 30)
    gone = slice_of(1, offer={"subject": "_INBOX.gone.x", "bytes": 9 * FRAME_BYTES})
    left, coming = fetching(slices, gone), fetching(slices, await ends.held(2))
    await asyncio.sleep(0)
    left.cancel()
    async with asyncio.timeout(BOUND_S):
        await coming


async def test_no_memory_for_a_slice_is_told(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fetch(self: Fetcher, offer: object) -> bytes:
        raise MemoryError

    monkeypatch.setattr(Fetcher, "fetch", fetch)
    with pytest.raises(QueueError) as raised:
        await fetching(LargeSlices(ends.fetcher, 1 << 30), await ends.held(1))
    assert raised.value.failure == "UNAVAILABLE"
