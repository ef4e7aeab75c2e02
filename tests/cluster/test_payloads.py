"""Payloads larger than a message come whole, by frames or by a store; bounded, and not for ever."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from sie_cluster.messages.frames import FrameError, encode
from sie_cluster.queue.payloads import holding
from sie_cluster.queue.payloads.fetching import TRIES, WINDOW, Fetcher
from sie_cluster.queue.payloads.holding import Holder
from sie_cluster.queue.payloads.offers import FRAME_BYTES, Offer
from sie_cluster.queue.payloads.room import Room
from sie_cluster.queue.payloads.store import PayloadStore, open_payload_store
from sie_cluster.settings import ClusterSettings
from sie_fake.broker.queue import in_process_transports

from sie_core.contracts import Message, PluginError, QueueError, QueueTransport
from sie_core.folder_store import FolderStore
from sie_core.plugins import PluginSet

MOST = 1 << 24
SIZES = [0, 1, FRAME_BYTES - 1, FRAME_BYTES, FRAME_BYTES + 1, 9 * FRAME_BYTES + 7]


@dataclass
class Ends:
    """A process that offers and one that fetches."""

    sender: QueueTransport
    receiver: QueueTransport
    folder: Path

    @property
    def store(self) -> PayloadStore:
        return PayloadStore(FolderStore(self.folder, durable=False))

    def stored(self) -> list[Path]:
        return [file for file in self.folder.rglob("*") if file.is_file()]

    async def until_nothing_is_stored(self) -> None:
        async with asyncio.timeout(30):
            while self.stored():  # noqa: ASYNC110 - a folder tells nobody
                await asyncio.sleep(0.01)


@pytest.fixture
async def ends(tmp_path: Path) -> AsyncIterator[Ends]:
    (factory,) = in_process_transports()
    one, other = (factory.create("memory://bulk", {}) for _ in range(2))
    await one.open()
    await other.open()
    yield Ends(one, other, tmp_path / "store")
    await one.close()
    await other.close()


@pytest.mark.parametrize("stored", [False, True], ids=["frames", "store"])
@pytest.mark.parametrize("size", SIZES)
async def test_a_payload_arrives_whole_and_is_kept_no_more(ends: Ends, size: int, stored: bool) -> None:
    payload, fetched, store = os.urandom(size), asyncio.Event(), ends.store if stored else None
    holder, fetcher = Holder(ends.sender, MOST, store), Fetcher(ends.receiver, store)
    offer = await holder.offer(payload, on_fetched=fetched.set)
    assert (holder.held_bytes, holder.stored_bytes) == ((0, size) if stored else (size, 0))
    assert len(ends.stored()) == stored
    assert await fetcher.fetch(Offer.from_map(offer.to_map(), most=MOST)) == payload
    await asyncio.wait_for(fetched.wait(), 30)
    assert (holder.held_bytes, holder.stored_bytes) == (0, 0)
    await ends.until_nothing_is_stored()


async def test_no_more_than_a_window_of_all_payloads_is_on_its_way(ends: Ends) -> None:
    holder, fetcher, asked, most = Holder(ends.sender, 3 * MOST), Fetcher(ends.receiver), 0, 0
    offers = [await holder.offer(bytes(9 * FRAME_BYTES)) for _ in range(3)]

    def count(step: int) -> None:
        nonlocal asked, most
        asked += step
        most = max(most, asked)

    step = {0: 0, 8: 1}  # the last word, a question; else a frame
    await ends.sender.subscribe("_INBOX.>", lambda message: count(step.get(len(message.payload), -1)))
    await asyncio.gather(*map(fetcher.fetch, offers))
    assert 1 < most <= WINDOW


@pytest.mark.parametrize("stored", [False, True], ids=["frames", "store"])
async def test_what_is_withdrawn_is_told(ends: Ends, stored: bool) -> None:
    store = ends.store if stored else None
    holder = Holder(ends.sender, MOST, store)
    offer = await holder.offer(bytes(3 * FRAME_BYTES))
    holder.withdraw(offer)
    await ends.until_nothing_is_stored()
    with pytest.raises(QueueError) as refused:
        await Fetcher(ends.receiver, store).fetch(offer)
    assert refused.value.failure == "NOT_FOUND"


async def test_a_holder_that_closes_leaves_nothing_in_the_store(ends: Ends) -> None:
    holder = Holder(ends.sender, MOST, ends.store)
    for _ in range(3):
        await holder.offer(b"payload")
    await holder.close()
    assert ends.stored() == []


async def test_a_holder_that_is_gone_is_told_in_time(ends: Ends) -> None:
    with pytest.raises(QueueError) as refused:
        await Fetcher(ends.receiver, frame_wait_s=0.05).fetch(Offer("_INBOX.nobody.x", 3 * FRAME_BYTES))
    assert refused.value.failure == "UNAVAILABLE"


async def test_payloads_of_a_holder_that_is_gone_are_given_up_together(ends: Ends) -> None:
    """They would keep the window from all others for as long as each of them is waited for."""
    asked: list[Message] = []
    await ends.sender.subscribe("_INBOX.gone.*", asked.append)
    fetcher, holder = Fetcher(ends.receiver, frame_wait_s=0.2), Holder(ends.sender, MOST)
    gone = [asyncio.create_task(fetcher.fetch(Offer(f"_INBOX.gone.{name}", 9 * FRAME_BYTES))) for name in range(9)]
    await asyncio.sleep(0)  # they come first
    assert await fetcher.fetch(await holder.offer(b"payload")) == b"payload"
    told = await asyncio.gather(*gone, return_exceptions=True)
    assert {getattr(each, "failure", None) for each in told} == {"UNAVAILABLE"}
    assert len(asked) == WINDOW * TRIES


async def test_who_holds_one_payload_cannot_guess_where_the_frames_of_others_come(ends: Ends) -> None:
    """It is told the inbox by the questions it is asked, and could answer for another process."""
    payload, inbox = b"right", ""

    async def forge() -> None:
        for number in range(16):
            await ends.sender.send(f"{inbox}.{number}", encode({"start": 0}, (b"wrong",)))

    def asked(message: Message) -> None:
        nonlocal inbox
        inbox = message.reply.rpartition(".")[0]
        forging.append(asyncio.create_task(forge()))

    forging: list[asyncio.Task[None]] = []
    fetcher = Fetcher(ends.receiver, frame_wait_s=0.05)
    await ends.sender.subscribe("_INBOX.silent.x", asked)
    with pytest.raises(QueueError) as refused:
        await fetcher.fetch(Offer("_INBOX.silent.x", len(payload)))
    assert refused.value.failure == "UNAVAILABLE"
    await asyncio.gather(*forging)


async def test_frames_that_were_not_asked_for_are_dropped(ends: Ends) -> None:
    """Of another length, at another place, no frame at all, or one that comes twice: the payload is the sender's."""
    payload = os.urandom(2 * FRAME_BYTES)

    def answer(message: Message) -> None:
        if not message.payload:
            return
        start = int.from_bytes(message.payload, "big")
        right = payload[start : start + FRAME_BYTES]
        for bad in (b"", b"SIE", encode({"start": start}, (right[:-1],)), encode({"start": start + 1}, (right,)),
                    encode({"start": "0"}, (right,)), encode({"start": start}), encode({"start": start}, (right,)),
                    encode({"start": start}, (bytes(len(right)),))):  # fmt: skip
            asyncio.get_running_loop().create_task(ends.sender.send(message.reply, bad))

    inbox = await ends.sender.inbox(answer)
    assert await Fetcher(ends.receiver).fetch(Offer(f"{inbox.subject}.x", len(payload))) == payload


async def test_what_is_on_offer_is_bounded(ends: Ends) -> None:
    holder = Holder(ends.sender, 100)
    await holder.offer(bytes(60))
    with pytest.raises(QueueError) as refused:
        await holder.offer(bytes(41))
    assert refused.value.failure == "FULL"


async def test_a_payload_of_a_store_that_this_process_lacks_is_told(ends: Ends) -> None:
    offer = await Holder(ends.sender, MOST, ends.store).offer(b"payload")
    with pytest.raises(QueueError, match="SIE_PAYLOAD_STORE_URL") as refused:
        await Fetcher(ends.receiver).fetch(offer)
    assert refused.value.failure == "CONFIG"


async def test_a_store_that_fails_costs_no_request(ends: Ends) -> None:
    ends.folder.write_text("a file where the folder should be")
    holder = Holder(ends.sender, MOST, ends.store)
    assert await Fetcher(ends.receiver).fetch(await holder.offer(b"payload")) == b"payload"


async def test_a_store_that_stands_still_does_not_hold_up_the_end(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holding, "CLOSE_S", 0.05)
    stands = threading.Event()

    class Still(FolderStore):
        def delete(self, key: str) -> None:
            stands.wait(30)
            super().delete(key)

    holder = Holder(ends.sender, MOST, PayloadStore(Still(ends.folder)))
    await holder.offer(b"payload")
    try:
        await asyncio.wait_for(holder.close(), 15)
    finally:
        stands.set()
    await ends.until_nothing_is_stored()


async def test_a_store_that_stands_still_is_given_up_and_takes_no_threads_of_others(ends: Ends) -> None:
    stands = threading.Event()

    class Still(FolderStore):
        def write(self, key: str, data: bytes) -> None:
            stands.wait(30)
            super().write(key, data)

    store = PayloadStore(Still(ends.folder), answer_s=0.02)
    holder = Holder(ends.sender, MOST, store)
    try:
        async with asyncio.timeout(15):
            for _ in range(40):  # more than threads that are shared
                assert (await holder.offer(b"payload")).key is None, "it goes in frames"
            await asyncio.to_thread(lambda: None)
    finally:
        stands.set()


async def test_a_stored_payload_of_another_size_is_not_read(ends: Ends) -> None:
    offer = await Holder(ends.sender, MOST, ends.store).offer(b"payload")
    with pytest.raises(QueueError) as refused:
        await Fetcher(ends.receiver, ends.store).fetch(replace(offer, bytes=6))
    assert refused.value.failure == "NOT_FOUND"


async def test_what_an_ended_process_left_is_swept_and_nothing_else(ends: Ends) -> None:
    store, folder = ends.store, ends.folder / "payloads"
    await Holder(ends.sender, MOST, store).offer(b"left behind")
    (folder / "of somebody else").write_bytes(b"")
    assert await store.sweep(leftover_s=60) == 0
    assert len(ends.stored()) == 2
    assert await store.sweep(leftover_s=0) == 1
    assert [file.name for file in ends.stored()] == ["of somebody else"]


@pytest.mark.parametrize(
    "told",
    [
        None,
        [],
        {},
        {"subject": 1, "bytes": 1},
        {"subject": "a", "bytes": True},
        {"subject": "a", "bytes": -1},
        {"subject": "a", "bytes": 1, "key": 7},
        {"subject": "a", "bytes": 1, "key": "../../etc/passwd"},
        {"subject": "a", "bytes": 1, "key": "0" * 32 + "\n"},
    ],
)
def test_what_is_no_offer_is_refused(told: object) -> None:
    with pytest.raises(FrameError):
        Offer.from_map(told, most=100)


def test_an_offer_beyond_the_bound_is_refused() -> None:
    with pytest.raises(FrameError, match="101 bytes is beyond the 100"):
        Offer.from_map({"subject": "a", "bytes": 101}, most=100)


async def test_who_came_first_always_finds_room_and_others_wait_for_those_who_leave() -> None:
    room = Room(100)
    assert await room.enter("first", 90)
    assert await room.enter("second", 10)
    waiting = asyncio.create_task(room.enter("second", 1))
    given_up = asyncio.create_task(room.enter("third", 1))
    assert await room.enter("first", 500)
    await asyncio.sleep(0)  # both wait now
    room.leave("third")
    assert not await asyncio.wait_for(given_up, 30)
    assert not waiting.done()
    room.leave("first")
    assert await asyncio.wait_for(waiting, 30)
    room.leave("second")
    assert room.held_bytes == 0


def test_the_store_is_chosen_by_its_url(tmp_path: Path) -> None:
    assert open_payload_store(ClusterSettings(), PluginSet()) is None
    assert open_payload_store(ClusterSettings(payload_store_url=str(tmp_path)), PluginSet()) is not None
    for url, told in (("pigeon://coop", "no installed plugin serves pigeon://"), (__file__, "is no folder")):
        with pytest.raises(PluginError, match=told):
            open_payload_store(ClusterSettings(payload_store_url=url), PluginSet())


async def test_frames_are_sent_to_inboxes_alone(ends: Ends) -> None:
    """Who asks names where they go; a sidecar is no way to subjects that its peer may not send to."""
    holder = Holder(ends.sender, MOST)
    offer = await holder.offer(b"payload")
    came: asyncio.Queue[Message] = asyncio.Queue()
    await ends.receiver.subscribe(">", came.put_nowait)
    for reply in ("sie.cancel._default", "_INBOX.*.x", ""):
        await ends.receiver.send(offer.subject, bytes(8), reply)
    assert await Fetcher(ends.receiver).fetch(offer) == b"payload"
    told = [came.get_nowait() for _ in range(came.qsize())]
    assert {message.subject.partition(".")[0] for message in told} == {"_INBOX"}
