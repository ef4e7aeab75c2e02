"""Large payloads go in frames: whole, bounded, in any order, and not for ever."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

import pytest

from sie_core.cluster.messages.bulk import FRAME_BYTES, WINDOW, BulkSender, Offer, fetch
from sie_core.cluster.messages.frames import FrameError
from sie_core.contracts import QueueError, QueueTransport
from sie_core.defaults.in_process_queue import sie_queue_transports


@pytest.fixture
async def ends() -> AsyncIterator[tuple[QueueTransport, QueueTransport]]:
    (factory,) = sie_queue_transports()
    one, other = (factory.create("memory://bulk", {}) for _ in range(2))
    await one.open()
    await other.open()
    yield one, other
    await one.close()
    await other.close()


@pytest.mark.parametrize("size", [0, 1, FRAME_BYTES - 1, FRAME_BYTES, FRAME_BYTES + 1, 9 * FRAME_BYTES + 7])
async def test_a_payload_arrives_whole_and_is_held_no_more(ends: tuple[QueueTransport, QueueTransport], size: int):
    payload, fetched = os.urandom(size), asyncio.Event()
    sender = BulkSender(ends[0], 1 << 24)
    offer = await sender.offer(payload, fetched.set)
    assert sender.held_bytes == size
    assert await fetch(ends[1], Offer.from_map(offer.to_map(), most=1 << 24)) == payload
    await asyncio.wait_for(fetched.wait(), 5)
    assert sender.held_bytes == 0


async def test_no_more_than_a_window_is_on_its_way(ends: tuple[QueueTransport, QueueTransport]):
    sender, asked, most = BulkSender(ends[0], 1 << 24), 0, 0
    offer = await sender.offer(bytes(20 * FRAME_BYTES))

    def count(step: int) -> None:
        nonlocal asked, most
        asked += step
        most = max(most, asked)

    await ends[0].subscribe(offer.subject, lambda message: count(1 if message.payload else 0))
    await ends[0].subscribe("_INBOX.*", lambda _: count(-1))
    await fetch(ends[1], offer)
    assert 1 < most <= WINDOW


async def test_what_is_withdrawn_is_told(ends: tuple[QueueTransport, QueueTransport]):
    sender = BulkSender(ends[0], 1 << 24)
    offer = await sender.offer(bytes(3 * FRAME_BYTES))
    sender.withdraw(offer)
    assert sender.held_bytes == 0
    with pytest.raises(QueueError) as refused:
        await fetch(ends[1], offer)
    assert refused.value.failure == "NOT_FOUND"


async def test_a_holder_that_is_gone_is_told_in_time(ends: tuple[QueueTransport, QueueTransport]):
    with pytest.raises(QueueError) as refused:
        await fetch(ends[1], Offer("_INBOX.nobody.x", 3 * FRAME_BYTES), wait_s=0.05)
    assert refused.value.failure == "UNAVAILABLE"


async def test_what_is_on_offer_is_bounded(ends: tuple[QueueTransport, QueueTransport]):
    sender = BulkSender(ends[0], 100)
    await sender.offer(bytes(60))
    with pytest.raises(QueueError) as refused:
        await sender.offer(bytes(41))
    assert refused.value.failure == "FULL"


@pytest.mark.parametrize(
    "told", [{}, {"subject": 1, "bytes": 1}, {"subject": "a", "bytes": True}, {"subject": "a", "bytes": -1}]
)
def test_what_is_no_offer_is_refused(told: dict[str, object]):
    with pytest.raises(FrameError):
        Offer.from_map(told, most=100)


def test_an_offer_beyond_the_bound_is_refused():
    with pytest.raises(FrameError, match="101 bytes is beyond the 100"):
        Offer.from_map({"subject": "a", "bytes": 101}, most=100)
