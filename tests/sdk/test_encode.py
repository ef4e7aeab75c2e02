"""What `encode` sends, and what it makes of the answer, in both formats."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sie_sdk import IncompleteBatchError, RequestError, __version__, dense_embedding, wire
from sie_sdk._calls.exchange import Response
from sie_sdk.types import Item

CIRCLE: list[object] = []
CIRCLE.append(CIRCLE)


def test_a_plain_call_sends_the_item_alone(rehearsal):
    rehearsal.encode(rehearsal.vectors())
    (send,) = rehearsal.sends
    assert (send.method, send.url) == ("POST", "http://server/v1/encode/org/m")
    assert send.headers == {
        "X-SIE-SDK-Version": __version__,
        "Accept": "application/msgpack",
        "Content-Type": "application/msgpack",
    }
    assert rehearsal.sent() == {"items": [{"text": "text"}]}


def test_everything_asked_for_travels_where_the_contract_puts_it(rehearsal):
    rehearsal.encode(
        rehearsal.vectors(),
        items=[Item(id="a", text="x", metadata={"n": 1})],
        output_types=("dense",),
        instruction="find",
        output_dtype="int8",
        is_query=True,
        options={"profile": "fast"},
        input_type="query",
        dimensions=128,
        truncate="error",
    )
    assert rehearsal.sent() == {
        "items": [{"id": "a", "text": "x", "metadata": {"n": 1}}],
        "params": {
            "output_types": ["dense"],
            "instruction": "find",
            "output_dtype": "int8",
            "input_type": "query",
            "dimensions": 128,
            "truncate": "error",
            "options": {"profile": "fast", "is_query": True},
        },
    }


@pytest.mark.parametrize("priority", ["interactive", "bulk", None])
def test_a_priority_travels_in_a_header(rehearsal, priority):
    rehearsal.encode(rehearsal.vectors(), priority=priority)
    assert rehearsal.sends[-1].headers.get("X-SIE-Priority") == priority


def test_a_call_s_options_go_over_the_client_s(rehearsal):
    client = {"options": {"profile": "slow", "normalize": True}}
    rehearsal.encode(rehearsal.vectors(), client=client, options={"profile": "fast"}, is_query=False)
    assert rehearsal.sent()["params"] == {"options": {"profile": "fast", "normalize": True, "is_query": False}}


@pytest.mark.parametrize(
    ("default", "call", "profile", "pool"),
    [
        ("l4", None, "l4", None),
        ("l4", "h100", "h100", None),
        (None, "eu/l4", "l4", "eu"),
        (None, "eu/l4/x", "l4/x", "eu"),
        (None, None, None, None),
    ],
)
def test_a_machine_profile_travels_in_headers(rehearsal, default, call, profile, pool):
    rehearsal.encode(rehearsal.vectors(), client={"gpu": default}, gpu=call)
    headers = rehearsal.sends[0].headers
    assert (headers.get("X-SIE-MACHINE-PROFILE"), headers.get("X-SIE-Pool")) == (profile, pool)


def test_the_key_travels_as_a_bearer(rehearsal):
    rehearsal.encode(rehearsal.vectors(), client={"api_key": "secret"})
    assert rehearsal.sends[0].headers["Authorization"] == "Bearer secret"


@pytest.mark.parametrize("item", ["x", Item(text="x"), {"text": "x"}])
def test_one_item_in_gives_one_result_and_a_list_a_list(rehearsal, item):
    single = rehearsal.encode(rehearsal.vectors(), items=item)
    assert single["dense"].tolist() == [1, 2, 3]
    assert rehearsal.sent() == {"items": [{"text": "x"}]}
    for sequence in ([item], (item,)):
        (listed,) = rehearsal.encode(rehearsal.vectors(), items=sequence)
        assert listed["dense"].tolist() == [1, 2, 3]


def test_an_empty_list_is_the_server_s_to_refuse(rehearsal):
    with pytest.raises(RequestError, match="the reason"):
        rehearsal.encode(rehearsal.error(400, "INVALID_INPUT"), items=[])
    assert rehearsal.sent() == {"items": []}


@pytest.mark.parametrize("items", [7, None, b"bytes", ["a", 7], [b"bytes"], iter(["a"])])
def test_what_is_no_item_is_refused_before_anything_is_sent(rehearsal, items):
    with pytest.raises(TypeError, match="give an Item"):
        rehearsal.encode(rehearsal.vectors(), items=items)
    assert not rehearsal.sends


def test_one_output_type_where_a_list_belongs_is_refused(rehearsal):
    with pytest.raises(TypeError, match="output_types is the string 'dense'; give a list"):
        rehearsal.encode(rehearsal.vectors(), output_types="dense")
    assert not rehearsal.sends


@pytest.mark.parametrize("model", ["", "..", "a/../b", "a//b", "/a", "./a"])
def test_an_id_that_would_name_another_route_is_refused(rehearsal, model):
    for operation in (rehearsal.protocol().get_model(model, {}),):
        with pytest.raises(ValueError, match="no model id"):
            next(operation)


def test_an_id_stands_unescaped_but_for_what_would_end_the_path(rehearsal):
    action = next(rehearsal.protocol().get_model("org/m-1.5:fast@v2?x#y z", {}))
    assert action.url == "http://server/v1/models/org/m-1.5:fast@v2%3Fx%23y%20z"
    assert action.headers == {"X-SIE-SDK-Version": __version__, "Accept": "application/json"}
    assert action.body is None


def test_json_sends_lists_and_base64_and_reads_lists_into_arrays(rehearsal):
    answer = {
        "model": "org/m",
        "items": [
            {
                "id": "a",
                "dense": {"dims": 3, "dtype": "int8", "values": [1, -2, 3]},
                "sparse": {"dims": None, "dtype": "float16", "indices": [4, 9], "values": [0.5, 0.25]},
                "multivector": {"token_dims": 2, "num_tokens": 1, "dtype": "float32", "values": [[1, 2]]},
            }
        ],
    }
    result = rehearsal.encode(
        Response(200, {"content-type": "application/json"}, json.dumps(answer).encode()),
        items=Item(id="a", images=[{"data": b"\xff\x00"}]),
        client={"wire_format": "json"},
        options={"weights": np.float32([0.5, 1])},
    )
    assert rehearsal.sends[0].headers["Accept"] == "application/json"
    assert rehearsal.sent() == {
        "items": [{"id": "a", "images": [{"data": "/wA="}]}],
        "params": {"options": {"weights": [0.5, 1.0]}},
    }
    assert (result["dense"].dtype, result["dense"].tolist()) == (np.int8, [1, -2, 3])
    assert (result["sparse"]["indices"].dtype, result["sparse"]["values"].dtype) == (np.int32, np.float16)
    assert result["multivector"].shape == (1, 2)
    assert not any(array.flags.writeable for array in (result["dense"], result["multivector"]))


def test_an_array_in_options_travels_as_bytes(rehearsal):
    rehearsal.encode(rehearsal.vectors(), options={"weights": np.float32([0.5, 1])})
    np.testing.assert_array_equal(rehearsal.sent()["params"]["options"]["weights"], np.float32([0.5, 1]))


@pytest.mark.parametrize("wire_format", ["msgpack", "json"])
def test_what_has_no_form_in_the_format_is_refused_before_anything_is_sent(rehearsal, wire_format):
    with pytest.raises(ValueError, match="set"):
        rehearsal.encode(rehearsal.vectors(), client={"wire_format": wire_format}, options={"x": {1}})
    assert not rehearsal.sends


@pytest.mark.parametrize("wire_format", ["msgpack", "json"])
@pytest.mark.parametrize(
    ("items", "settings", "told"),
    [
        (["fine", "ab\ud83d"], {}, r"items\[1\]\.text has half of a surrogate pair, U\+D83D, at character 2"),
        ("\udc00", {}, r"items\[0\]\.text has half"),
        ("x", {"options": {"a": [1, "\ud800"]}}, r"params\.options\.a\[1\] has half"),
        ("x", {"instruction": "\ud800"}, r"params\.instruction has half"),
        (
            [{"text": "x"}, {"text": "y", "metadata": {"n": {1}}}],
            {},
            r"items\[1\]\.metadata\.n cannot be sent: a set is|a set can",
        ),
        ("x", {"options": {"a": CIRCLE}}, r"params\.options\.a\[0\]\[0\]"),
    ],
)
def test_what_cannot_be_sent_is_named_by_its_place(rehearsal, wire_format, items, settings, told):
    with pytest.raises(wire.WireError, match=told):
        rehearsal.encode(Response(200, {}, b""), items=items, client={"wire_format": wire_format}, **settings)
    assert rehearsal.sends == []


def test_a_result_carries_its_id_truncation_timing_and_request(rehearsal):
    dense = {"dims": 1, "dtype": "float32", "values": np.zeros(1, np.float32)}
    items = [{"id": "a", "dense": dense, "sparse": None, "truncated": {"tokens": 900, "kept": 256}}, {"dense": dense}]
    timing = {"total_ms": 3.5, "queue_ms": 1, "postprocessing_ms": None}
    answer = rehearsal.vectors(
        items=items, timing=timing, usage={"input_tokens": 300}, headers={"x-sie-request-id": "r-1"}
    )
    first, second = rehearsal.encode(answer, items=[Item(id="a", text="x"), "y"])
    assert first["id"] == "a"
    assert first["truncated"] == {"tokens": 900, "kept": 256}
    assert "sparse" not in first
    assert {"id", "truncated"}.isdisjoint(second)
    for result in (first, second):
        assert result["model"] == "org/m"
        assert result["timing"] == {"total_ms": 3.5, "queue_ms": 1.0}
        assert result["request"] == {"id": "r-1", "usage": {"input_tokens": 300}}


def test_timing_and_usage_are_read_from_headers_where_the_body_has_none(rehearsal):
    headers = {
        "x-total-time": "12.50",
        "x-queue-time": "0.25",
        "x-inference-time": "broken",
        "x-sie-units-input-tokens": "42",
        "x-sie-units-images": "007",
        "x-sie-request-id": " padded ",
        "x-sie-runtime-instance": "é",
    }
    result = rehearsal.encode(rehearsal.vectors(headers=headers))
    assert result["timing"] == {"total_ms": 12.5, "queue_ms": 0.25}
    assert result["request"] == {"usage": {"input_tokens": 42}}


def test_what_nothing_valid_is_said_of_is_absent(rehearsal):
    assert set(rehearsal.encode(rehearsal.vectors())) == {"model", "dense"}


def test_too_few_results_are_an_error_that_keeps_them(rehearsal):
    dense = {"dims": 1, "dtype": "float32", "values": np.zeros(1, np.float32)}
    answer = rehearsal.vectors(items=[{"id": "b", "dense": dense}], headers={"x-sie-request-id": "r-1"})
    with pytest.raises(IncompleteBatchError) as caught:
        rehearsal.encode(answer, items=[Item(id="a"), Item(id="b"), "text"])
    error = caught.value
    assert (error.expected, error.received, error.missing_ids) == (3, 1, ["a"])
    assert (error.code, error.status_code, error.request_id) == ("ENCODE_RESULT_COUNT_MISMATCH", None, "r-1")
    assert error.results[0]["id"] == "b"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        b"{}",
        wire.pack([]),
        wire.pack({}),
        wire.pack({"model": "m"}),
        wire.pack({"model": "m", "items": 7}),
        wire.pack({"model": "m", "items": [7]}),
        wire.pack({"model": "m", "items": [{"dense": 7}]}),
        wire.pack({"model": "m", "items": [{"dense": {"values": "text"}}]}),
        wire.pack({"model": "m", "items": [{"dense": {"dtype": "odd", "values": [1]}}]}),
        wire.pack({"model": "m", "items": [{"truncated": {}}]}),
        wire.pack({"model": "m", "items": [{"dense": np.zeros(3)}]}),
        wire.pack({"model": "m", "items": [{"dense": {"dtype": "int8", "values": [300]}}]}),
    ],
)
def test_an_unreadable_answer_is_a_request_error_that_says_so(rehearsal, body):
    with pytest.raises(RequestError, match="cannot be read") as caught:
        rehearsal.encode(Response(200, {"content-type": "application/msgpack"}, body))
    assert caught.value.status_code == 200


@pytest.mark.parametrize("body", ['{"data": []}', '{"models": [1]}', "[]", "no"])
def test_an_unreadable_list_of_models_is_a_request_error(rehearsal, body):
    answer = Response(200, {"content-type": "application/json"}, body.encode())
    with pytest.raises(RequestError, match="cannot be read"):
        rehearsal.play(rehearsal.protocol().list_models({}), [answer])
    with pytest.raises(RequestError, match="cannot be read"):
        rehearsal.play(rehearsal.protocol().get_model("m", {}), [answer])


def test_models_are_what_the_server_says_of_them(rehearsal):
    def answer(body):
        return Response(200, {"content-type": "application/json"}, json.dumps(body).encode())

    models = [{"name": "a", "more": 1}, {"name": "b"}]
    protocol = rehearsal.protocol()
    assert rehearsal.play(protocol.list_models({}), [answer({"models": models, "object": "list"})]) == models
    assert rehearsal.play(protocol.get_model("a", {}), [answer(models[0])]) == models[0]


def test_the_dense_vector_is_taken_out_or_missed_by_name(rehearsal):
    result = rehearsal.encode(rehearsal.vectors())
    assert dense_embedding(result) is result["dense"]
    assert dense_embedding({"model": "m"}, strict=False) is None
    with pytest.raises(ValueError, match="it has model"):
        dense_embedding({"model": "m"})
