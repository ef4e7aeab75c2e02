"""Slices larger than a message count until the adapter process has them; a client that leaves ends the fetching."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from sie_cluster.messages.frames import FrameError
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
    came: asyncio.Queue[Slice] = field(default_factory=asyncio.Queue)
    failed: asyncio.Queue[tuple[Slice, QueueError | FrameError]] = field(default_factory=asyncio.Queue)

    def slices(self, most_bytes: int = 1 << 30) -> LargeSlices:
        return LargeSlices(self.fetcher, self, most_bytes)

    def is_inbox(self, subject: str) -> bool:
        return True

    def fetched(self, held: Slice) -> None:
        self.came.put_nowait(held)

    def not_fetched(self, held: Slice, problem: QueueError | FrameError) -> None:
        self.failed.put_nowait((held, problem))

    async def held(self, number: int) -> Slice:
        text = Item(text="a" * FRAME_BYTES)
        plain = slice_of(number).head
        shared = pack_shared(InferenceRequest("m", "encode", [text], "r"))
        offer = await self.holder.offer(encode_work(plain, shared, [pack_item(text)]))
        return slice_of(number, offer=offer.to_map())


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
    slices, (first, second) = ends.slices(FRAME_BYTES + 1000), [await ends.held(number) for number in (1, 2)]
    for each in (first, second):
        slices.fetch(each)
    async with asyncio.timeout(BOUND_S):
        assert await ends.came.get() is first
        assert (ends.came.qsize(), slices.held_bytes) == (0, first.head.offer and first.head.offer["bytes"])
        slices.leave(first)
        assert await ends.came.get() is second
    slices.leave(second)
    assert slices.held_bytes == 0


async def test_nothing_is_fetched_for_who_has_left(ends: Ends) -> None:
    """Its gateway may be gone: who waits for its frames keeps others waiting."""
    slices = ends.slices()
    gone = slice_of(1, offer={"subject": "_INBOX.gone.x", "bytes": 9 * FRAME_BYTES})
    slices.fetch(gone)
    held = await ends.held(2)
    slices.fetch(held)
    await asyncio.sleep(0)
    slices.leave(gone)
    async with asyncio.timeout(BOUND_S):
        assert await ends.came.get() is held
    assert ends.failed.empty()


async def test_no_memory_for_a_slice_is_told(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fetch(self: Fetcher, offer: object) -> bytes:
        raise MemoryError

    monkeypatch.setattr(Fetcher, "fetch", fetch)
    slices, held = ends.slices(), await ends.held(1)
    slices.fetch(held)
    async with asyncio.timeout(BOUND_S):
        failed, problem = await ends.failed.get()
    assert failed is held
    assert isinstance(problem, QueueError)
    assert problem.failure == "UNAVAILABLE"
