"""What travels between processes arrives as it left, and bytes of an enemy are refused by type."""

from __future__ import annotations

import time
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sie_cluster.messages import frames
from sie_cluster.messages.errors import error_from_map, error_to_map
from sie_cluster.messages.frames import FrameError
from sie_cluster.messages.requests import (
    OF_THE_HEAD,
    pack_item,
    pack_large_items,
    pack_shared,
    pack_small_items,
    read_item,
    read_request,
)
from sie_cluster.messages.work import (
    MOST_WHOLE,
    ResultHead,
    WorkHead,
    decode_result,
    decode_work,
    encode_result,
    encode_work,
    read_work_head,
    subject,
    to_map,
    work_key,
)
from sie_sdk.errors import ERRORS
from sie_sdk.wire import pack, unpack

from sie_core.contracts import InferenceError, InferenceRequest, Item, LoadWait, Media, ReplyForm, Timing, Usage

ITEMS = [
    Item(),
    Item(id="a", text="fox \U0001f98a", metadata={"page": 3}),
    Item(token_ids=(1, 2, 3)),
    Item(images=(Media(b"\x89PNG", "png"), Media(b"")), audio=Media(b"RIFF", sample_rate=16_000)),
    Item(video=Media(b"v"), document=Media(b"%PDF", format="pdf")),
]
# One value for each field of a request that is not its default.
SAID: dict[str, Any] = {
    "output_types": ("dense", "sparse"),
    "output_dtype": "float16",
    "input_type": "query",
    "instruction": "find",
    "truncate": "error",
    "dimensions": 8,
    "labels": ("person", "place"),
    "output_schema": {"type": "object"},
    "options": {"threshold": 0.5, "nested": {"a": [1, None]}},
    "wishes": {"normalize": True},
    "demands": {"return_len": 1},
    "load_wait": LoadWait(2.5, if_soon=True),
    "reply": ReplyForm(1000, 12.5, 3.5),
}
HEAD = WorkHead(
    "r1", 0, 2, 1, "encode", "org/model:fast", b"k" * 16, 0, 2, 40, "_INBOX.x", "me", "bulk", 1.5, "00-abc-01"
)


def request(**said: Any) -> InferenceRequest:
    return InferenceRequest("org/model", "encode", ITEMS, request_id="r1", **said)


def read_back(asked: InferenceRequest, **head: Any) -> InferenceRequest:
    told = {"model": asked.model, "operation": asked.operation, "request_id": asked.request_id} | head
    query = b"" if asked.query is None else pack_item(asked.query)
    return read_request(told, pack_shared(asked), pack_small_items(asked.items), query)


def test_every_field_of_a_request_arrives():
    names = {field.name for field in fields(InferenceRequest)} - OF_THE_HEAD
    assert set(SAID) <= names
    untold = names - set(SAID)
    # A new field of the contract is given a value above, so that nothing is lost on the way.
    assert not untold, f"no value for {sorted(untold)}"
    for said in ({}, SAID, *({name: value} for name, value in SAID.items())):
        assert read_back(request(**said)) == request(**said)
    with_query = replace(request(), operation="score", query=Item(text="q"))
    assert read_back(with_query) == with_query


def test_who_asks_and_how_urgently_arrives_without_keeping_requests_apart():
    asked = request(client="me", priority="bulk")
    assert read_back(asked, client="me", priority="bulk") == asked
    assert pack_shared(asked) == pack_shared(request())


def test_large_items_are_packed_as_small_ones_are():
    picture = Item(id="p", images=(Media(b"p" * (1 << 21), "png"), Media(b"small")), metadata={"a": [1, None]})
    items = [*ITEMS, picture, Item(document=Media(b"d" * (1 << 20)))]
    assert pack_large_items(items) == pack_small_items(items)


def test_the_time_left_counts_from_arrival():
    arrived = read_back(request(), left_s=5.0)
    assert arrived.deadline is not None
    assert 4.0 < arrived.deadline - time.monotonic() <= 5.0


def test_equal_requests_share_a_key_and_others_do_not():
    def key(model: str = "m", **said: Any) -> bytes:
        return work_key(model, "encode", pack_shared(request(**said)))

    assert key(labels=("a",)) == key(labels=("a",))
    assert len({key(), key("n"), key(labels=("a",)), key(dimensions=8), key(instruction="a")}) == 5


def test_a_slice_and_its_result_arrive():
    shared, items, query = pack_shared(request()), [pack_item(item) for item in ITEMS[:2]], pack_item(Item(text="q"))
    frame = encode_work(HEAD, shared, items, query)
    assert read_work_head(frame) == HEAD
    head, got_shared, got_items, got_query = decode_work(frame)
    assert (head, bytes(got_shared), got_items, bytes(got_query)) == (HEAD, shared, items, query)

    encoded = [pack({"dense": [1.0]}), pack({"dense": [2.0]})]
    timing, usage = Timing(total_ms=3.0, postprocessing_ms=None), Usage(7, 1)
    done = ResultHead("r1", 0, 1, 2, None, to_map(timing), to_map(usage), 1, "lora", ("colour",))
    told, parts = decode_result(encode_result(done, encoded))
    assert (told, parts, told.read_timing(), told.read_usage()) == (done, encoded, timing, usage)
    assert unpack(parts[1]) == {"dense": [2.0]}

    failed = ResultHead("r1", 0, 1, 0, error_to_map(InferenceError("QUEUE_FULL", "no room")))
    assert decode_result(encode_result(failed))[0] == failed


def test_a_large_result_is_split_by_the_sizes_it_tells_and_wrong_ones_are_refused():
    items = [pack({"dense": bytes(1 << 20)}), pack({"dense": b"small"})]
    done = ResultHead("r1", 0, 1, 2)
    frame = encode_result(done, items)
    told, parts = decode_result(frame)
    assert told.sizes is not None
    assert [bytes(part) for part in parts] == items
    assert unpack(parts[1]) == {"dense": b"small"}
    head, (section,) = frames.decode(frame)
    first, second = told.sizes
    for sizes in ([], [first], [first - 1, second], [first + second, 0], [first, second, 1], [first, -second],
                  [first, float(second)], [first + second + 1, -1]):  # fmt: skip
        with pytest.raises(FrameError, match="sizes"):
            decode_result(frames.encode(head | {"sizes": sizes}, (section,)))
    with pytest.raises(FrameError, match="the sizes of 2 items"):
        decode_result(frames.encode(head, (b"\x93" + bytes(section[1:]),)))


@pytest.mark.parametrize("code", ERRORS)
def test_every_error_of_the_table_arrives(code: str):
    error = InferenceError(code, "items[3].text is empty.", param="items[3].text", retry_after_s=2.5, details={"a": 1})
    arrived = error_from_map(error_to_map(error), first=32)
    assert (arrived.code, arrived.param, arrived.retry_after_s) == (code, "items[35].text", 2.5)
    assert (arrived.message, arrived.details) == ("items[35].text is empty.", {"a": 1})
    assert error_from_map(error_to_map(error)).message == error.message


def test_an_unknown_code_is_an_internal_error_that_names_it():
    arrived = error_from_map({"code": "TOO_MUCH_JAM", "message": "sticky", "flavour": "plum"})
    assert arrived.code == "INTERNAL_ERROR"
    assert "TOO_MUCH_JAM" in arrived.message
    assert error_from_map({}).code == "INTERNAL_ERROR"


def test_names_become_tokens_of_a_subject():
    assert subject("sie", "work", "org/m-v1.5", "a b*>") == "sie.work.org__m-v1_dot_5.a_b__"


def broken() -> list[tuple[str, bytes]]:
    good = encode_work(HEAD, b"\x80", [b"\x80", b"\x80"])

    def changed(**values: Any) -> bytes:
        told = frames.read_head(good) | values
        return frames.encode(told, (b"\x80", b"", b"\x92\x80\x80"))

    return [
        ("cut short", b""),
        ("cut short", good[:4]),
        ("do not begin", b"XXX" + good[3:]),
        ("version 9", good[:3] + b"\x09" + good[4:]),
        ("sections", good[:4] + b"\xff" + good[5:]),
        ("lengths say", good[:-1]),
        ("lengths say", good + b"\x00"),
        ("is beyond", good[:5] + b"\xff\xff\xff\xff" + good[9:]),
        ("'request_id': Field required", frames.encode({}, (b"", b"", b""))),
        ("'slice': Input should be a valid integer", changed(slice="0")),
        ("'attempt': Input should be a valid integer", changed(attempt=True)),
        ("'items': Input should be greater", changed(items=0)),
        ("'items': Input should be less", changed(items=MOST_WHOLE + 1)),
        ("contradict", changed(slice=7)),
        ("'first': Input should be greater", changed(first=-1)),
        ("operation", changed(operation="delete")),
        ("3 items are announced, and 2", changed(items=3)),
        ("3 sections", frames.encode(frames.read_head(good), (b"\x80",))),
        ("bytes are left", frames.encode(frames.read_head(good), (b"\x80", b"", b"\x92\x80\x80\x80"))),
        ("cannot be read", frames.encode(frames.read_head(good), (b"\x80", b"", b"\x92\x80"))),
    ]


@pytest.mark.parametrize(("told", "frame"), broken())
def test_a_broken_slice_is_refused(told: str, frame: bytes):
    with pytest.raises(FrameError, match=told):
        decode_work(frame)


@pytest.mark.parametrize(
    "packed", [b"", b"\xc1", b"\x90", b"\x81", pack({"text": "a", "colour": 1}), pack({"audio": 3})]
)
def test_a_broken_item_is_refused(packed: bytes):
    with pytest.raises(FrameError):
        read_item(packed)


def test_a_field_that_a_newer_gateway_knows_is_refused_in_a_request_and_passed_over_in_a_head():
    with pytest.raises(FrameError, match="'colour', which this process does not know"):
        read_request({"model": "m", "operation": "encode", "request_id": "r"}, pack({"colour": "red"}), [], b"")
    good = encode_work(HEAD, b"\x80", [b"\x80", b"\x80"])
    assert read_work_head(frames.encode(frames.read_head(good) | {"colour": "red"}, (b"", b"", b""))) == HEAD


GOOD = encode_work(HEAD, b"\x80", [b"\x80", b"\x80"])


@settings(max_examples=400, deadline=None)
@given(st.one_of(st.binary(max_size=200), st.binary(max_size=60).map(lambda tail: GOOD[:40] + tail)))
def test_any_bytes_are_read_or_refused_by_type(data: bytes):
    for read in (frames.decode, frames.read_head, read_work_head, decode_work, decode_result, read_item):
        try:
            read(data)
        except FrameError:
            continue


@settings(max_examples=400, deadline=None)
@given(st.integers(0, len(GOOD) - 1), st.integers(0, 255))
def test_one_changed_byte_is_read_or_refused_by_type(place: int, byte: int):
    data = GOOD[:place] + bytes([byte]) + GOOD[place + 1 :]
    try:
        head, _, items, _ = decode_work(data)
    except FrameError:
        return
    assert len(items) == head.items
