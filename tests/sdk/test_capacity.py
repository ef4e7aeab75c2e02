"""What a gateway can take, waiting for it, and frames of a WebSocket, without I/O."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sie_sdk import ProvisioningError, RequestError, SIEConnectionError
from sie_sdk._calls.cluster.websocket import Frames
from sie_sdk._calls.exchange import Response

from tests.sdk.conftest import Rehearsal, answer
from tests.sdk.test_parity import FLEET


def told(**changed: Any) -> Response:
    return Response(200, {"content-type": "application/json"}, json.dumps(FLEET | changed).encode())


def test_workers_that_take_no_work_are_listed_and_not_counted(rehearsal):
    got = rehearsal.play(rehearsal.protocol().get_capacity({"gpu": "pool/L4"}), [told()])
    assert (got["worker_count"], got["gpu_count"], got["ready_gpu_slots"], got["models_loaded"]) == (1, 2, 1, 1)
    assert [worker["gpu"] for worker in got["workers"]] == ["l4", "l4"]
    every = rehearsal.play(rehearsal.protocol().get_capacity({}), [told()])
    assert (every["worker_count"], every["gpu_count"]) == (2, 10)
    assert every["configured_gpu_types"] == ["l4", "h100"]


def test_a_server_that_is_no_gateway_tells_no_capacity(rehearsal):
    with pytest.raises(RequestError) as raised:
        rehearsal.play(rehearsal.protocol().get_capacity({}), [told(type="standalone")])
    assert raised.value.code == "not_gateway"


def test_it_looks_every_five_seconds_until_a_worker_takes_work(rehearsal):
    nobody = told(workers=[])
    got = rehearsal.play(rehearsal.protocol().wait_for_capacity("l4", {}), [nobody, nobody, told()])
    assert got["worker_count"] == 1
    assert rehearsal.sleeps == [5.0, 5.0]


def test_it_waits_no_longer_than_it_is_told(rehearsal):
    with pytest.raises(ProvisioningError, match=r"h100.*l4") as raised:
        rehearsal.play(rehearsal.protocol().wait_for_capacity("h100", {"timeout_s": 12}), [told()])
    assert rehearsal.sleeps == [5.0, 5.0, 2.0]
    assert raised.value.gpu == "h100"


def test_a_model_is_warmed_up_on_that_machine_first(rehearsal):
    rehearsal.play(rehearsal.protocol().wait_for_capacity("l4", {"model": "org/m"}), [rehearsal.vectors(), told()])
    first, second = rehearsal.sends
    assert (first.url, first.headers["X-SIE-MACHINE-PROFILE"]) == ("http://server/v1/encode/org/m", "l4")
    assert second.url == "http://server/health"


NOT_SERVED = Rehearsal.error(400, "INVALID_INPUT", param="model")
NO_TEXT = Rehearsal.error(400, "INVALID_INPUT", param="items[0].text")
NO_LABELS = Rehearsal.error(400, "INVALID_INPUT", param="params.labels")
NO_SCHEMA = Rehearsal.error(400, "INVALID_INPUT", param="params.output_schema")
SCORED = answer({"model": "m", "scores": [{"item_id": "item-0", "score": 1, "rank": 0}]})
EXTRACTED = answer({"model": "m", "items": [{}]})


@pytest.mark.parametrize(
    ("outcomes", "asked"),
    [
        ([NOT_SERVED, SCORED], ["encode", "score"]),
        ([NOT_SERVED, NOT_SERVED, EXTRACTED], ["encode", "score", "extract"]),
        ([NOT_SERVED, NOT_SERVED, NO_LABELS], ["encode", "score", "extract"]),
        ([NOT_SERVED, NOT_SERVED, NO_SCHEMA], ["encode", "score", "extract"]),
        ([NO_TEXT], ["encode"]),
    ],
)
def test_a_model_is_warmed_up_by_what_it_serves_and_a_refusal_of_a_text_will_do(rehearsal, outcomes, asked):
    rehearsal.play(rehearsal.protocol().wait_for_capacity("l4", {"model": "org/m"}), [*outcomes, told()])
    assert [send.url for send in rehearsal.sends[:-1]] == [f"http://server/v1/{each}/org/m" for each in asked]
    assert {send.headers.get("X-SIE-MACHINE-PROFILE") for send in rehearsal.sends[:-1]} == {"l4"}


@pytest.mark.parametrize(
    "refusal",
    [
        NOT_SERVED,
        Rehearsal.error(400, "INVALID_INPUT", param="X-SIE-MACHINE-PROFILE"),
        Rehearsal.error(404, "MODEL_NOT_FOUND", param="model"),
        Rehearsal.error(401, "UNAUTHORIZED"),
    ],
)
def test_any_other_refusal_of_the_warm_up_is_raised(rehearsal, refusal):
    with pytest.raises(RequestError):
        rehearsal.play(rehearsal.protocol().wait_for_capacity("l4", {"model": "org/m"}), [refusal])


@pytest.mark.parametrize(
    ("mode", "outcomes", "path"),
    [
        ("auto", [told()], "/ws/cluster-status"),
        ("auto", [told(type="standalone")], "/ws/status"),
        ("auto", [Response(404, {}, b"")], "/ws/status"),
        ("cluster", [None], "/ws/cluster-status"),
        ("worker", [None], "/ws/status"),
    ],
)
def test_what_is_watched_is_what_the_server_is(rehearsal, mode, outcomes, path):
    send = rehearsal.play(rehearsal.protocol(api_key="k").watch({"mode": mode}), outcomes)
    assert send.url == f"http://server{path}"
    assert send.headers["Authorization"] == "Bearer k"
    assert send.headers["Upgrade"] == "websocket"


def test_a_mode_that_is_none_is_refused(rehearsal):
    with pytest.raises(ValueError, match="'auto', 'cluster' and 'worker'"):
        rehearsal.play(rehearsal.protocol().watch({"mode": "all"}), [told()])


def frame(payload: bytes, kind: int = 1, *, final: bool = True) -> bytes:
    size = len(payload)
    wide = 0 if size < 126 else 2 if size < 1 << 16 else 8
    head = {0: bytes([size & 0x7F]), 2: b"\x7e", 8: b"\x7f"}[wide] + (size.to_bytes(wide, "big") if wide else b"")
    return bytes([(0x80 if final else 0) | kind]) + head + payload


@pytest.mark.parametrize("size", [1, 125, 126, 65_535, 65_536])
def test_messages_are_read_whatever_pieces_they_come_in(size):
    body = json.dumps({"a": "x" * size}).encode()
    wire = frame(body) + frame(body[:7], final=False) + frame(b"hi", 9) + frame(body[7:], 0)
    for piece in (1 if size < 200 else 4096, len(wire)):
        frames = Frames()
        got = [each for at in range(0, len(wire), piece) for each in frames.take(wire[at : at + piece])]
        assert got == [json.loads(body)] * 2
        (pong,) = frames.answers
        assert pong[:2] == b"\x8a\x82"
        assert bytes(byte ^ pong[2 + place % 4] for place, byte in enumerate(pong[6:])) == b"hi"


def test_a_server_that_ends_ends_what_is_watched_and_a_fault_is_an_error():
    frames = Frames()
    assert list(frames.take(frame((1001).to_bytes(2, "big"), 8))) == []
    assert frames.closed
    for data in (frame((1013).to_bytes(2, "big") + b"64 clients", 8), b"", frame(b"[]"), frame(b"\xff"),
                 b"\x81\x7f" + (1 << 40).to_bytes(8, "big")):  # fmt: skip
        with pytest.raises(SIEConnectionError):
            list(Frames().take(data))
