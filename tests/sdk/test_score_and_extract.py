"""What `score` and `extract` send, and what they make of the answer."""

from __future__ import annotations

import json

import pytest
from sie_sdk import IncompleteBatchError, InputTooLongError, LoraLoadingError, RequestError
from sie_sdk._calls.exchange import Response
from sie_sdk.types import Item

from .conftest import answer

RANKED = [{"item_id": "b", "score": 2.5, "rank": 0}, {"item_id": "item-0", "score": -1, "rank": 1}]
SCORED = {"model": "org/m", "query_id": None, "scores": RANKED}
NOTHING = {"entities": [], "relations": [], "classifications": [], "objects": []}


def test_a_plain_score_sends_the_query_and_a_list_of_items(rehearsal):
    rehearsal.score(answer(SCORED))
    (send,) = rehearsal.sends
    assert (send.method, send.url) == ("POST", "http://server/v1/score/org/m")
    assert rehearsal.sent() == {"query": {"text": "query"}, "items": [{"text": "a"}, {"text": "b"}]}


def test_a_score_s_settings_stand_beside_its_items(rehearsal):
    client = {"options": {"a": 1, "b": 1}, "gpu": "l4"}
    rehearsal.score(answer(SCORED), client=client, instruction="find", options={"b": 2}, truncate="error")
    sent = rehearsal.sent()
    assert {key: sent[key] for key in sent.keys() - {"query", "items"}} == {
        "instruction": "find",
        "truncate": "error",
        "options": {"a": 1, "b": 2},
    }
    assert rehearsal.sends[0].headers["X-SIE-MACHINE-PROFILE"] == "l4"


def test_the_best_of_a_ranking_are_returned(rehearsal):
    result = rehearsal.score(answer(SCORED), top_k=1)
    assert [each["item_id"] for each in result["scores"]] == ["b"]
    assert "top_k" not in rehearsal.sent()
    with pytest.raises(ValueError, match="top_k is 0; 1 is the least"):
        rehearsal.score(answer(SCORED), top_k=0)


def test_a_single_document_is_a_list_of_one(rehearsal):
    call = rehearsal.protocol().score("org/m", Item(id="q", text="x"), {"text": "y"}, {})
    rehearsal.play(call, [answer(SCORED)])
    assert rehearsal.sent() == {"query": {"id": "q", "text": "x"}, "items": [{"text": "y"}]}


def test_a_ranking_comes_as_typed_dicts(rehearsal):
    cut = [RANKED[0] | {"truncated": {"tokens": 9, "kept": 5}, "more": 1}, RANKED[1]]
    body = SCORED | {
        "scores": cut,
        "query_id": "q",
        "usage": {"input_tokens": 7, "input_tokens_details": {}},
        "timing": {"total_ms": 3.5, "postprocessing_ms": None},
    }
    result = rehearsal.score(answer(body, {"x-sie-request-id": "r"}))
    assert result == {
        "model": "org/m",
        "query_id": "q",
        "scores": [
            {"item_id": "b", "score": 2.5, "rank": 0, "truncated": {"tokens": 9, "kept": 5}},
            {"item_id": "item-0", "score": -1.0, "rank": 1},
        ],
        "usage": {"input_tokens": 7},
        "timing": {"total_ms": 3.5},
        "request": {"id": "r", "usage": {"input_tokens": 7}},
    }


def test_a_server_that_says_little_gives_a_small_result(rehearsal):
    result = rehearsal.score(answer({"model": "org/m", "scores": RANKED}, {"x-total-time": "1.5"}))
    assert result == {"model": "org/m", "scores": RANKED, "timing": {"total_ms": 1.5}}


@pytest.mark.parametrize(
    "body",
    [{}, {"model": "m"}, SCORED | {"scores": None}, SCORED | {"scores": [{"item_id": "a", "score": 1.0}]},
     SCORED | {"scores": [{"item_id": "a", "score": "high", "rank": 0}]}, SCORED | {"scores": [7]}],
)  # fmt: skip
def test_an_answer_that_is_no_ranking_is_an_error(rehearsal, body):
    with pytest.raises(RequestError, match="no answer to score"):
        rehearsal.score(answer(body))


def test_a_plain_extract_sends_the_item_alone_and_labels_in_params(rehearsal):
    rehearsal.extract(answer({"model": "org/m", "items": [{}]}))
    assert rehearsal.sends[0].url == "http://server/v1/extract/org/m"
    assert rehearsal.sent() == {"items": [{"text": "text"}]}
    schema = {"type": "object"}
    rehearsal.extract(
        answer({"model": "org/m", "items": [{}]}),
        labels=("person", "place"),
        output_schema=schema,
        instruction="find",
        options={"threshold": 0.3},
        truncate="start",
    )
    assert rehearsal.sent()["params"] == {
        "labels": ["person", "place"],
        "output_schema": schema,
        "instruction": "find",
        "truncate": "start",
        "options": {"threshold": 0.3},
    }


def test_what_was_extracted_comes_as_typed_dicts_for_each_item(rehearsal):
    entity = {"text": "Ada", "label": "person", "score": 1, "start": 3, "end": 6, "bbox": None}
    relation = {"head": "Ada", "tail": "Bo", "relation": "knows", "score": 0.5}
    found = {
        "id": "a",
        "entities": [entity, {"text": "x", "label": "word", "score": 0.1, "bbox": [0, 1, 2, 3]}],
        "relations": [relation, relation | {"head_span": [3, 6], "tail_span": [9, 11], "more": 1}],
        "classifications": [{"label": "good", "score": 0.9}],
        "objects": [{"label": "cat", "score": 0.8, "bbox": [1, 2, 3, 4]}],
        "data": {"name": "Ada"},
        "truncated": {"tokens": 9, "kept": 5},
    }
    body = {"model": "org/m", "items": [found, {"id": "item-1"}], "usage": {"input_tokens": 4}}
    first, second = rehearsal.extract(answer(body), items=[{"id": "a", "text": "x"}, "y"])
    assert first["entities"] == [entity, {"text": "x", "label": "word", "score": 0.1, "start": None, "end": None,
                                          "bbox": [0.0, 1.0, 2.0, 3.0]}]  # fmt: skip
    assert first["relations"] == [relation, relation | {"head_span": [3, 6], "tail_span": [9, 11]}]
    assert first["classifications"] == found["classifications"]
    assert first["objects"] == [{"label": "cat", "score": 0.8, "bbox": [1.0, 2.0, 3.0, 4.0]}]
    assert (first["data"], first["truncated"], first["id"]) == (found["data"], found["truncated"], "a")
    request = {"usage": {"input_tokens": 4}}
    assert second == {"model": "org/m", "id": "item-1", **NOTHING, "request": request}


@pytest.mark.parametrize(
    ("error", "read"),
    [
        ({"code": "INPUT_TOO_LONG", "message": "m"}, {"code": "INPUT_TOO_LONG", "message": "m"}),
        ({"code": "X"}, {"code": "X", "message": "X"}),
        ("odd", {"code": "INTERNAL_ERROR", "message": "odd"}),
    ],
)
def test_an_item_that_failed_alone_says_why(rehearsal, error, read):
    result = rehearsal.extract(answer({"model": "m", "items": [{"id": "a", "error": error}]}))
    assert result["error"] == read
    assert result["entities"] == []


@pytest.mark.parametrize(
    "item",
    [{"entities": [{"text": "a", "label": "b"}]}, {"relations": [{"head": "a", "tail": "b", "score": 1}]},
     {"objects": [{"label": "a", "score": 1}]}, {"classifications": 7}, 7],
)  # fmt: skip
def test_an_answer_that_is_no_extraction_is_an_error(rehearsal, item):
    with pytest.raises(RequestError, match="no answer to extract"):
        rehearsal.extract(answer({"model": "m", "items": [item]}))


def test_fewer_results_than_items_are_told_with_what_came(rehearsal):
    body = {"model": "m", "items": [{"id": "a", "data": {"x": 1}}]}
    with pytest.raises(IncompleteBatchError) as caught:
        rehearsal.extract(answer(body), items=[{"id": "a"}, {"id": "b"}])
    assert caught.value.code == "EXTRACT_RESULT_COUNT_MISMATCH"
    assert caught.value.missing_ids == ["b"]
    assert caught.value.results[0]["data"] == {"x": 1}


def test_a_single_string_is_no_list_of_labels(rehearsal):
    with pytest.raises(TypeError, match="labels is the string 'person'"):
        rehearsal.extract(answer({}), labels="person")


@pytest.mark.parametrize("operation", ["score", "extract"])
def test_failures_are_those_of_encode(rehearsal, operation):
    call = getattr(rehearsal, operation)
    with pytest.raises(InputTooLongError) as caught:
        call(rehearsal.error(400, "INPUT_TOO_LONG"))
    assert caught.value.model == "org/m"
    with pytest.raises(LoraLoadingError):
        call(rehearsal.error(503, "LORA_LOADING"), options={"lora": "legal"})
    rehearsal.sleeps.clear()
    good = answer(SCORED if operation == "score" else {"model": "m", "items": [{}]})
    call(rehearsal.error(503, "MODEL_LOADING", retry_after=2), good)
    assert rehearsal.sleeps == [2.0]


def test_json_answers_read_the_same(rehearsal):
    body = {"model": "org/m", "scores": RANKED}
    plain = Response(200, {"content-type": "application/json"}, json.dumps(body).encode())
    assert rehearsal.score(plain, client={"wire_format": "json"}) == rehearsal.score(answer(body))
