"""The published `sie-sdk` 0.10.1, unchanged, against a live server."""

from __future__ import annotations

import numpy as np
import pytest
from sie_sdk import SIEClient

MODEL = "sentence-transformers/all-MiniLM-L6-v2"
TEXTS = ["a small model", "Ein kurzer Satz über Züge.", "短い文章 🚆", "behind a search " * 20]

pytestmark = [pytest.mark.client, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def told(published_sdk, minilm_server):
    return published_sdk.run("published_sdk.py", url=minilm_server, model=MODEL, texts=TEXTS)


@pytest.fixture(scope="module")
def own(minilm_server):
    with SIEClient(minilm_server) as client:
        yield client


def close(vector, reference):
    np.testing.assert_allclose(np.float32(vector), np.float32(reference), atol=1e-3)
    return True


def test_one_item_and_a_list_give_the_vectors_our_own_client_gets(told, own):
    ours = own.encode(MODEL, TEXTS)
    assert told["one"]["id"] == "a"
    assert told["one"]["dtype"] == "float32"
    assert told["one"]["model"] == MODEL
    assert close(told["one"]["dense"], ours[0]["dense"])
    assert len(told["many"]) == len(TEXTS)
    assert all(close(theirs["dense"], mine["dense"]) for theirs, mine in zip(told["many"], ours, strict=True))
    assert not np.allclose(told["many"][0]["dense"], told["many"][1]["dense"], atol=1e-3)


def test_every_result_has_its_timing(told):
    for result in [told["one"], *told["many"]]:
        assert result["timing"]["total_ms"] > 0


def test_the_output_dtype_is_honoured(told, own):
    assert told["float16"]["dtype"] == "float16"
    assert close(told["float16"]["dense"], told["one"]["dense"])
    assert told["int8"]["dtype"] == "int8"
    assert max(map(abs, told["int8"]["dense"])) == 127


def test_a_query_is_encoded_as_one(told, own):
    # The model declares no prompts, so a query is its text.
    assert close(told["query"]["dense"], own.encode(MODEL, TEXTS[0], is_query=True)["dense"])


def test_the_models_are_listed_with_what_the_client_reads(told, own):
    listed = {model["name"]: model for model in told["models"]}
    assert told["model"] == told["model"] | listed[MODEL]
    assert {"text"} <= set(told["model"]["inputs"])
    assert told["model"]["outputs"] == ["dense"]
    assert told["model"]["dims"] == {"dense": 384}
    assert told["model"]["max_sequence_length"] == 256
    assert told["model"]["name"] == own.get_model(MODEL)["name"]
    assert [model["name"] for model in own.list_models()] == [model["name"] for model in told["models"]]


def test_an_unknown_model_and_an_empty_list_are_told_as_such(told):
    assert (told["refused"]["code"], told["refused"]["status"]) == ("MODEL_NOT_FOUND", 404)
    assert MODEL in told["refused"]["message"]
    assert told["empty"] == {"code": "INVALID_INPUT", "status": 400}
