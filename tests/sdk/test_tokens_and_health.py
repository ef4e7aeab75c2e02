"""What `tokenize` and `health` send, and what they make of the answer."""

from __future__ import annotations

import json

import pytest
from sie_sdk import ModelLoadFailedError, RequestError
from sie_sdk._calls.exchange import Response

TOKEN = {"id": 7, "text": "x", "special": False, "start": 0, "stop": 1}
SPECIAL = {"id": 1, "text": "[CLS]", "special": True, "start": None, "stop": None}


def as_json(body: object, status: int = 200) -> Response:
    return Response(status, {"content-type": "application/json"}, json.dumps(body).encode())


@pytest.mark.parametrize("wire_format", ["msgpack", "json"])
def test_texts_travel_as_json_below_the_model(rehearsal, wire_format):
    client = rehearsal.protocol(api_key="k", gpu="l4", wire_format=wire_format)
    tokens = rehearsal.play(client.tokenize("org/m", ["x", ""], {"timeout_s": 5}), [as_json([[SPECIAL, TOKEN], []])])
    assert tokens == [[SPECIAL, TOKEN], []]
    (send,) = rehearsal.sends
    assert (send.method, send.url, send.timeout_s) == ("POST", "http://server/tei/org/m/tokenize", 5)
    assert send.headers["Content-Type"] == send.headers["Accept"] == "application/json"
    assert (send.headers["Authorization"], send.headers["X-SIE-MACHINE-PROFILE"]) == ("Bearer k", "l4")
    assert rehearsal.sent() == {"inputs": ["x", ""], "add_special_tokens": True}


def test_one_text_in_gives_one_list_of_tokens(rehearsal):
    call = rehearsal.protocol().tokenize("org/m", "x", {"add_special_tokens": False})
    assert rehearsal.play(call, [as_json([[TOKEN]])]) == [TOKEN]
    assert rehearsal.sent() == {"inputs": ["x"], "add_special_tokens": False}


@pytest.mark.parametrize("body", [{"tokens": []}, [], [[TOKEN], [TOKEN]], [[{"id": 1}]], [7], "text"])
def test_another_answer_is_none(rehearsal, body):
    with pytest.raises(RequestError, match="cannot be read"):
        rehearsal.play(rehearsal.protocol().tokenize("org/m", "x", {}), [as_json(body)])


@pytest.mark.parametrize("model", ["", "..", "a/../b"])
def test_an_id_in_the_middle_of_a_path_names_no_other_route(rehearsal, model):
    with pytest.raises(ValueError, match="no model id"):
        rehearsal.play(rehearsal.protocol().tokenize(model, "x", {}), [])


def test_errors_in_the_shape_of_tei_keep_their_code_and_field(rehearsal):
    refused = {"error": "too much", "error_type": "Validation", "code": "INVALID_INPUT", "param": "inputs"}
    with pytest.raises(RequestError, match="too much") as caught:
        rehearsal.play(rehearsal.protocol().tokenize("org/m", "x", {}), [as_json(refused, 422)])
    assert (caught.value.code, caught.value.param, caught.value.status_code) == ("INVALID_INPUT", "inputs", 422)
    failed = {"error": "gone", "error_type": "Backend", "code": "MODEL_LOAD_FAILED", "permanent": True}
    with pytest.raises(ModelLoadFailedError, match="gone") as caught:
        rehearsal.play(rehearsal.protocol().tokenize("org/m", "x", {}), [as_json(failed, 424)])
    assert caught.value.permanent is True


def test_a_tokenizer_that_loads_is_waited_for(rehearsal):
    loading = as_json({"error": "wait", "error_type": "Unhealthy", "code": "MODEL_LOADING"}, 503)
    assert rehearsal.play(rehearsal.protocol().tokenize("org/m", "x", {}), [loading, as_json([[TOKEN]])]) == [TOKEN]
    assert len(rehearsal.sleeps) == 1


def test_health_is_asked_once_and_comes_as_it_is(rehearsal):
    told = {"status": "degraded", "type": "standalone", "problems": ["draining"], "models": [], "later": 1}
    assert rehearsal.play(rehearsal.protocol().health({"timeout_s": 2}), [as_json(told)]) == told
    (send,) = rehearsal.sends
    assert (send.method, send.url, send.timeout_s) == ("GET", "http://server/health", 2)
