"""Random bytes, from nonsense to nearly right, at every decoder and at the socket: read, or refused by type."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Callable
from typing import Any

import msgpack
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from sie_cluster.ipc.framing import FrameStream, Kind
from sie_cluster.messages.errors import error_from_map
from sie_cluster.messages.frames import FrameError, encode
from sie_cluster.messages.health import ModelReport, WorkerReport, decode_beat, decode_vitals, encode_beat
from sie_cluster.messages.requests import read_item, read_request
from sie_cluster.messages.status import WorkerStatus, decode_status, encode_status
from sie_cluster.messages.work import (
    ResultHead,
    WorkHead,
    decode_result,
    decode_work,
    encode_result,
    encode_work,
    read_work_head,
)
from sie_cluster.queue.payloads.offers import Offer
from sie_cluster.queue.subjects import work_subject

from sie_core.contracts import Work
from tests.cluster.in_process import Cluster

FUZZ = settings(
    max_examples=200, deadline=None, database=None, derandomize=True, phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
MODEL = "sie-fake/embedder"
ITEM: bytes = msgpack.packb({"text": "a", "metadata": {"b": [1, None]}})
HEAD = WorkHead("r", 0, 1, 1, "encode", MODEL, b"k" * 16, 0, 1, 1, "_INBOX.a.1")
RESULT = ResultHead("r", 0, 1, 1, timing={"total_ms": 1.0}, usage={"input_tokens": 1}, ignored_options=("a",))
REPORT = WorkerReport(
    "w", "_default", "default", models={MODEL: ModelReport("loaded", 1, 0.5, ("a",))}, pulled=frozenset({"s"})
)
SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=9) | st.binary()
ANYTHING = st.recursive(
    SCALARS, lambda child: st.lists(child, max_size=3) | st.dictionaries(st.text(max_size=5), child), max_leaves=6
)
HEADS = st.one_of(
    st.dictionaries(st.sampled_from(sorted(HEAD._asdict())), ANYTHING).map(lambda changed: HEAD._asdict() | changed),
    st.dictionaries(st.sampled_from(sorted(RESULT._asdict())), ANYTHING).map(
        lambda changed: RESULT._asdict() | changed
    ),
    st.dictionaries(st.text(max_size=9), ANYTHING),
)
GOOD = (
    encode_work(HEAD, b"\x80", [ITEM], ITEM),
    encode_result(RESULT, [ITEM]),
    encode_status(WorkerStatus(True)),
    encode_beat(REPORT, 7, b"status"),
)
DECODERS: tuple[Callable[[bytes], object], ...] = (
    read_work_head,
    decode_work,
    decode_result,
    decode_status,
    decode_beat,
    read_item,
)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A frame with some bytes changed, cut, or with others behind it."""
    frame = bytearray(draw(st.sampled_from(GOOD)))
    for _ in range(draw(st.integers(0, 3))):
        frame[draw(st.integers(0, len(frame) - 1))] = draw(st.integers(0, 255))
    return bytes(frame[: draw(st.integers(0, len(frame)))]) + draw(st.sampled_from([b"", b"\xc1", ITEM]))


def read_all(frame: bytes) -> None:
    for read in DECODERS:
        try:
            told = read(frame)
        except FrameError:
            continue
        if read is decode_result:
            head: ResultHead = told[0]  # type: ignore[index]
            assert head.read_usage().input_tokens >= 0
            assert head.read_timing().total_ms >= 0
            if head.error is not None:
                error_from_map(head.error, first=3)


@FUZZ
@given(damaged())
def test_damaged_frames_are_read_or_refused(frame: bytes) -> None:
    read_all(frame)


@FUZZ
@given(HEADS, st.lists(st.binary(max_size=9), max_size=4))
def test_heads_with_any_values_are_read_or_refused(head: dict[str, Any], sections: list[bytes]) -> None:
    read_all(encode(head, sections))
    read_all(encode(head, (ITEM, b"", b"\x91" + ITEM)))
    read_all(encode(head, (b"\x91" + ITEM,)))


@FUZZ
@given(ANYTHING)
def test_offers_errors_and_requests_of_any_values_are_read_or_refused(value: Any) -> None:
    packed = msgpack.packb(value)
    told = {"model": MODEL, "operation": "encode", "request_id": "r", "left_s": 1.0}
    for read in (
        lambda: Offer.from_map(value, 100),
        lambda: read_item(packed),
        lambda: decode_vitals(packed),
        lambda: read_request(told, packed, [], b""),
    ):
        try:
            read()
        except FrameError:
            continue
    if isinstance(value, dict):
        error_from_map(value)


@FUZZ
@given(
    st.lists(
        st.one_of(
            st.binary(max_size=40),
            st.tuples(st.sampled_from(list(Kind)), st.integers(0, 2**64 - 1), st.binary(max_size=30)).map(
                lambda frame: (
                    len(frame[2]).to_bytes(4, "big") + bytes((frame[0],)) + frame[1].to_bytes(8, "big") + frame[2]
                )
            ),
        ),
        max_size=6,
    ),
    st.integers(1, 50),
)
def test_any_stream_gives_frames_or_ends_the_connection(parts: list[bytes], step: int) -> None:
    data = b"".join(parts)

    async def run() -> list[bytes]:
        ours, theirs = socket.socketpair()
        frames: list[bytes] = []
        closed = asyncio.Event()
        stream = FrameStream(
            lambda _: None,
            lambda _, kind, number, payload: frames.append(
                len(payload).to_bytes(4, "big") + bytes((kind,)) + number.to_bytes(8, "big") + payload
            ),
            lambda _: closed.set(),
        )
        await asyncio.get_running_loop().connect_accepted_socket(lambda: stream, ours)
        with theirs:
            for start in range(0, len(data), step):
                try:
                    theirs.send(data[start : start + step])
                except OSError:
                    break  # it has ended the connection
                await asyncio.sleep(0)
        await asyncio.wait_for(closed.wait(), 30)
        return frames

    # What came out is what went in, up to where it ended.
    assert data.startswith(b"".join(asyncio.run(run())))


async def test_a_cluster_outlives_hundreds_of_damaged_slices(cluster: Cluster) -> None:
    """Damaged by an enemy who may fill the queue: all of them end, and the next request is answered."""
    body, wait = {"items": [{"text": "a"}]}, {"Prefer": "wait=30"}
    assert (await cluster.client.post(f"/v1/encode/{MODEL}", json=body, headers=wait)).status_code == 200
    inbox = await cluster.transport.inbox(lambda _: None)
    right = encode_work(
        WorkHead("r", 0, 1, 1, "encode", MODEL, b"k" * 16, 0, 2, 1, f"{inbox.subject}.1", left_s=30.0),
        b"\x80",
        [ITEM] * 2,
    )
    pulled = cluster.sidecar_metrics.registry.get_sample_value("sie_sidecar_slices_pulled_total") or 0.0
    chance, most = random.Random(13), 300
    for number in range(most):
        frame = bytearray(right)
        for _ in range(chance.randint(1, 3)):
            frame[chance.randrange(len(frame))] = chance.randrange(256)
        if chance.random() < 0.2:
            del frame[chance.randrange(len(frame)) :]
        subject = work_subject(MODEL, "_default", "default")
        await cluster.transport.publish(Work(subject, f"damaged{number}", bytes(frame)), lambda _: None)

    def all_pulled() -> bool:
        now = cluster.sidecar_metrics.registry.get_sample_value("sie_sidecar_slices_pulled_total") or 0.0
        return now >= pulled + most and cluster.sidecar.in_flight == 0

    await cluster.until(all_pulled)
    assert cluster.ended("refused") > most / 3
    assert await cluster.transport.backlog("sie-work-_default") == {}
    assert (await cluster.client.post(f"/v1/encode/{MODEL}", json=body, headers=wait)).status_code == 200
