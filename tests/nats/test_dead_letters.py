"""Dead letters at a real broker: each is shown once and in order, however large, and removed only when asked to."""

from __future__ import annotations

import asyncio

from sie_cluster.messages.requests import pack_item, pack_shared
from sie_cluster.messages.work import WorkHead, encode_work
from sie_cluster.queue.dead_letters import DeadLetter, encode_dead, read_dead
from sie_cluster.queue.subjects import dead_queue, dead_subject

from sie_core.contracts import InferenceRequest, Item, QueueError, Work
from tests.nats.conftest import Broker, transport

LETTERS, LARGE = 60, "x" * 250_000


async def test_each_of_many_large_letters_is_shown_once_in_order(own_broker: Broker) -> None:
    client = transport(own_broker.url)
    await client.open()
    request = InferenceRequest("org/model", "encode", [Item(text=LARGE)], request_id="r")
    work = pack_shared(request), [pack_item(item) for item in request.items]
    try:
        await client.declare_queue(dead_queue("_default"))
        for number in range(LETTERS):
            head = WorkHead(f"r{number}", 0, 1, 1, "encode", "org/model", b"k" * 16, 0, 1, 1, "_INBOX.gateway.1")
            letter = encode_dead(head, "two workers ended", encode_work(head, *work), client.max_payload)
            stored: asyncio.Future[int | QueueError] = asyncio.get_running_loop().create_future()
            await client.publish(
                Work(dead_subject("_default", "org/model"), head.request_id, letter), stored.set_result
            )
            assert isinstance(await asyncio.wait_for(stored, 60), int)
        for remove in (False, True, False):
            shown: list[DeadLetter] = []
            async with asyncio.timeout(60):
                await read_dead(client, "_default", 1000, shown.append, remove=remove)
            if remove or not shown:
                continue
            assert [each.request_id for each in shown] == [f"r{number}" for number in range(LETTERS)]
            assert {each.texts[0] for each in shown} == {LARGE}
        assert shown == []
    finally:
        await client.close()
