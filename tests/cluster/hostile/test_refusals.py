"""What an enemy sends to a queue, an inbox, a broadcast or a socket is refused and counted, and nothing falls over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import msgpack
import pytest
from sie_cluster.fleet.health.workers import Workers
from sie_cluster.ipc.framing import FrameStream, Kind
from sie_cluster.messages.frames import MAGIC, encode, read_head
from sie_cluster.messages.health import WorkerReport, encode_beat
from sie_cluster.messages.work import ResultHead, WorkHead, decode_result, encode_result, encode_work
from sie_cluster.queue.payloads.holding import Holder
from sie_cluster.queue.subjects import (
    cancel_subject,
    gateways_subject,
    health_subject,
    needed_subject,
    work_subject,
)
from sie_sdk.wire import pack

from sie_core.contracts import Message, Work
from tests.cluster.in_process import Cluster, running

MODEL = "sie-fake/embedder"
PATH = f"/v1/encode/{MODEL}"
SUBJECT = work_subject(MODEL, "_default", "default")
BEAT = {"worker": "w9", "pool": "_default", "bundle": "default"}
WRONG_BEATS: tuple[dict[str, Any], ...] = (
    {"worker": 9},
    {"bundle": None},
    {"held": "x"},
    {"beat_s": float("inf")},
    {"beat_s": float("nan")},
    {"beat_s": 1e9},
    {"beat_s": 0},
    {"models": ["a"]},
    {"models": {"a": {}}},
    {"models": {"a": ["happy", None, None, [], 0]}},
    {"models": {"a": ["loaded", None, None, [1], 0]}},
    {"pulled": {"a": 0}},
)
DEEP = b"\x81\xa1a" * 5_000 + b"\x80"
ENDLESS = b"\xdd\xff\xff\xff\xff"
"""A list that says it has four thousand million entries."""
SHARED, ITEM = b"\x80", msgpack.packb({"text": "a"})
JOINED = b"\x91" + ITEM


async def ask(cluster: Cluster) -> httpx.Response:
    headers = {"Prefer": "wait=30", "X-SIE-Request-ID": "r"}
    return await cluster.client.post(PATH, json={"items": [{"text": "a"}]}, headers=headers)


@dataclass
class Box:
    """An inbox of the enemy, who is known as a gateway."""

    inbox: str
    came: asyncio.Queue[Message]

    @property
    def head(self) -> WorkHead:
        return WorkHead("r", 0, 1, 1, "encode", MODEL, b"k" * 16, 0, 1, 1, f"{self.inbox}.1")


@pytest.fixture
async def box(cluster: Cluster) -> AsyncIterator[Box]:
    """An inbox; the model's work is pulled."""
    assert (await ask(cluster)).status_code == 200
    came: asyncio.Queue[Message] = asyncio.Queue()
    inbox = await cluster.transport.inbox(came.put_nowait)
    yield Box(inbox.subject, came)
    await inbox.close()


def raw(head: bytes, *sections: bytes) -> bytes:
    lengths = b"".join(len(part).to_bytes(4, "big") for part in (head, *sections))
    return MAGIC + bytes((1, len(sections))) + lengths + head + b"".join(sections)


async def publish(cluster: Cluster, payloads: list[bytes]) -> None:
    for number, payload in enumerate(payloads):
        await cluster.transport.publish(Work(SUBJECT, f"bad{number}", payload), lambda _: None)


async def still_well(cluster: Cluster) -> None:
    assert (await ask(cluster)).status_code == 200
    await cluster.until(lambda: cluster.sidecar.in_flight == 0)
    assert await cluster.transport.backlog("sie-work-_default") == {}


async def test_a_sidecar_refuses_slices_by_their_heads(cluster: Cluster, box: Box) -> None:
    """Of another model, for foreign, wildcard or malformed inboxes, of another version, cut short, or bombs."""
    holder = Holder(cluster.transport, 1 << 20)
    another = encode_work(box.head._replace(request_id="other", reply=f"{box.inbox}.x"), SHARED, [ITEM])
    other = await holder.offer(another)
    right = encode_work(box.head, SHARED, [ITEM])

    def with_head(**fields: Any) -> bytes:
        return encode(read_head(right) | fields, (SHARED, b"", JOINED))

    def with_offer(**fields: Any) -> bytes:
        return with_head(offer={**other.to_map(), **fields})

    bad = [
        with_head(model="sie-fake/dense"),
        *(with_head(reply=reply) for reply in (
            "sie.cancel._default", "sie.config.models._all", "$JS.API.STREAM.DELETE.sie-work-_default", "_INBOX.*.x",
            "_INBOX.>", "_INBOX.a b.c", "_INBOX", "_INBOX.a", "_INBOX..x", "", "_INBOX.a\r\nPUB x.y 1\r\nz\r\n.b",
            "_INBOX." + "a" * 60_000 + ".b",
        )),
        right[:3] + b"\x00" + right[4:],
        *(right[:cut] for cut in (0, 3, 5, 20, len(right) // 2, len(right) - 1)),
        right + b"\x00",
        raw(DEEP, SHARED, b"", JOINED),
        raw(ENDLESS, SHARED, b"", JOINED),
        raw(b"\x80", *(b"",) * 250),
        b"\x00" * 1_000_000,
        with_offer(subject="sie.work._default.x"),
        with_offer(subject="_INBOX.>"),
        with_offer(bytes=1 << 40),
        with_offer(bytes=-1),
        with_offer(key="../../../etc/passwd"),
        with_offer(),
        with_head(offer={}),
    ]  # fmt: skip
    before = cluster.ended("refused")
    await publish(cluster, bad)
    await cluster.until(lambda: cluster.ended("refused") == before + len(bad))
    assert box.came.empty()
    await still_well(cluster)


async def test_a_sidecar_leaves_a_slice_of_a_newer_release_in_the_queue(cluster: Cluster, box: Box) -> None:
    right = encode_work(box.head, SHARED, [ITEM])
    before = cluster.ended("handed_back")
    await publish(cluster, [right[:3] + b"\x02" + right[4:]])
    await cluster.until(lambda: cluster.ended("handed_back") > before)
    backlog = await cluster.transport.backlog("sie-work-_default")
    assert sum(backlog.values()) == 1
    assert box.came.empty()


async def test_a_worker_answers_bombs_in_a_slice_by_type(cluster: Cluster, box: Box) -> None:
    head = box.head
    bad = [
        encode_work(head, DEEP, [ITEM]),
        encode_work(head, ENDLESS, [ITEM]),
        encode_work(head, SHARED, [DEEP]),
        encode_work(head, SHARED, [ITEM], query=ENDLESS),
        encode_work(head, b"\xc1", [ITEM]),
        encode_work(head, SHARED, [b"\x90"]),
        encode(read_head(encode_work(head, SHARED, [ITEM])), (SHARED, b"", ENDLESS)),
        encode(read_head(encode_work(head, SHARED, [ITEM])), (SHARED, b"", JOINED + b"\x00")),
        *(encode_work(head._replace(operation=operation), SHARED, [ITEM]) for operation in ("tokenize", "decode")),
    ]
    await publish(cluster, bad)
    for _ in bad:
        async with asyncio.timeout(30):
            result, items = decode_result((await box.came.get()).payload)
        assert result.error is not None
        assert (result.error["code"], items) == ("INTERNAL_ERROR", [])
    await still_well(cluster)


RESULT = ResultHead("r", 0, 1, 1)
UNREADABLE: dict[str, Callable[[str], bytes]] = {
    "no frame": lambda _: b"no frame",
    "another version": lambda _: MAGIC + b"\x02" + encode_result(RESULT, [ITEM])[4:],
    "cut short": lambda _: encode_result(RESULT, [ITEM])[:-1],
    "deep": lambda _: raw(DEEP, JOINED),
    "endless": lambda _: raw(msgpack.packb({"request_id": "r", "slice": 0, "attempt": 1, "items": 1}), ENDLESS),
    "times that are texts": lambda _: encode_result(RESULT._replace(timing={"total_ms": "soon"}), [ITEM]),
    "counts below nothing": lambda _: encode_result(RESULT._replace(usage={"input_tokens": -5}), [ITEM]),
    "a header in a name": lambda _: encode_result(RESULT._replace(lora="x\r\nSet-Cookie: a=b"), [ITEM]),
    "an offer elsewhere": lambda _: encode({"offer": {"subject": "sie.cancel._default", "bytes": 5}}),
    "an offer of everything": lambda reply: encode({"offer": {"subject": f"{reply}.x", "bytes": 1 << 50}}),
    "an offer by path": lambda reply: encode({"offer": {"subject": f"{reply}.x", "bytes": 1, "key": "../../etc"}}),
}
IGNORED = [
    encode_result(RESULT._replace(slice=7), [ITEM]),
    encode_result(RESULT._replace(slice=-1), [ITEM]),
    encode_result(RESULT._replace(items=2), [ITEM, ITEM]),
    encode_result(RESULT._replace(items=0)),
    encode_result(RESULT._replace(request_id="another"), [ITEM]),
    encode_result(RESULT._replace(attempt=0), [ITEM]),
    encode_result(RESULT._replace(attempt=2), [ITEM]),
    encode_result(RESULT._replace(attempt=99, items=0, error={"code": "WORKER_LOST"})),
]
GUESSES = 16
"""Replies that a worker may guess, who knows those of its own requests: more than this gateway had requests."""


async def test_a_gateway_answers_results_that_cannot_be_read_by_type_and_counts_them(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        cluster.sidecar.close()  # nobody else answers
        cluster.hear_of_another()
        for make in UNREADABLE.values():
            asked = asyncio.create_task(ask(cluster))
            await cluster.until(lambda: len(cluster.dispatcher._flights) == 1)
            (reply,) = cluster.dispatcher._flights
            for ignored in IGNORED:
                await cluster.transport.send(reply, ignored)
            for number in range(GUESSES):
                await cluster.transport.send(f"{reply.rpartition('.')[0]}.{number}", encode_result(RESULT, [ITEM]))
            await cluster.transport.send(reply, make(reply))
            answered = await asyncio.wait_for(asked, 30)
            assert (answered.status_code, answered.json()["error"]["code"]) == (500, "INTERNAL_ERROR")
        assert cluster.metric("sie_gateway_results_refused_total") == len(UNREADABLE)
        assert cluster.metric("sie_gateway_results_dropped_total") == len(UNREADABLE) * (len(IGNORED) + GUESSES)


async def test_an_error_of_a_worker_with_strange_fields_reaches_the_client_in_shape(tmp_path: Path) -> None:
    strange = {
        "code": "QUEUE_FULL",
        "message": 7,
        "param": [],
        "retry_after_s": float("inf"),
        "details": {"a": b"\xff"},
    }
    async with running(tmp_path) as cluster:
        cluster.sidecar.close()
        cluster.hear_of_another()
        asked = asyncio.create_task(ask(cluster))
        await cluster.until(lambda: len(cluster.dispatcher._flights) == 1)
        (reply,) = cluster.dispatcher._flights
        await cluster.transport.send(
            reply, encode_result(RESULT._replace(items=0, error={"code": "QUEUE_FULL", **strange}))
        )
        answered = await asyncio.wait_for(asked, 30)
        assert (answered.status_code, answered.json()["error"]["code"]) == (503, "QUEUE_FULL")


async def test_broadcasts_of_an_enemy_change_nothing(cluster: Cluster, box: Box) -> None:
    frames = [
        b"",
        b"no frame",
        raw(DEEP),
        raw(ENDLESS),
        encode({}),
        encode({"inbox": 5, "beat_s": []}),
        encode({"inbox": "sie.work.>", "beat_s": 1.0}),
        encode({"inbox": box.inbox, "beat_s": float("nan")}),
        encode({"worker": "w9", "status": 1}, (b"",)),
        encode({"worker": "w9", "status": "x"}, (b"\x80",)),
        *(encode({"worker": "w9", "status": 0}, (pack(BEAT | wrong),)) for wrong in WRONG_BEATS),
    ]
    texts = [b"\xff" * 1_000_000, b"*", b">", b"_INBOX.>", b"sie.work.>", SUBJECT.encode() + b".x" * 1000]
    for subject in (cancel_subject("_default"), needed_subject("_default"), gateways_subject("_default"),
                    health_subject("w9")):  # fmt: skip
        for payload in (*frames, *texts):
            await cluster.transport.send(subject, payload)
    await still_well(cluster)
    assert {worker.name for worker in cluster.backend.workers()} == {"w1"}


def test_a_heartbeat_in_the_name_of_another_worker_is_not_believed() -> None:
    workers = Workers()
    beat = encode_beat(WorkerReport("w1", "_default", "default", up=True))
    workers.heard(Message(health_subject("w2"), beat))
    assert not list(workers)
    workers.heard(Message(health_subject("w1"), beat))
    assert list(workers.reports()) == ["w1"]


async def test_a_stranger_on_the_socket_changes_nothing(cluster: Cluster, tmp_path: Path) -> None:
    """Of the same user, as processes of others cannot connect: every kind with bad payloads, then a cut frame."""
    assert (await ask(cluster)).status_code == 200
    before = cluster.intake.connections
    opened, closed = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    for payload in (b"", b"no frame", encode({}), raw(DEEP), b"\x00" * 100_000):
        opened.clear()
        closed.clear()
        stream = FrameStream(lambda _: opened.set(), lambda *_: None, lambda _: closed.set())
        await loop.create_unix_connection(lambda stream=stream: stream, str(tmp_path / "ipc"))
        for kind in (Kind.WORK, Kind.RESULT, Kind.CANCEL, Kind.STATUS, Kind.PING, Kind.DRAIN):
            stream.send(kind, 1 << 63, payload)
        await asyncio.sleep(0)
        stream.transport.write(b"\x00\x00\x10\x00\x01half of a frame")
        stream.close()
        await asyncio.wait_for(closed.wait(), 30)
    await cluster.until(lambda: cluster.intake.connections == before)
    await still_well(cluster)
