"""Every operation and output with the published `sie-sdk` 0.10.1, unchanged, against a live server of fakes."""

from __future__ import annotations

import numpy as np
import pytest
from sie_sdk import SIEClient
from sie_sdk._requests.media import png

QUERY = "red fox"
DOCUMENTS = ["a house", "a red fox", "red, no fox", "a red hat"]
TEXT = "👩‍🔬 person=Ada of place=London, e\u0301 Ada-knows->Grace"
IMAGE = png(np.arange(48, dtype=np.uint8).reshape(4, 4, 3))

pytestmark = [pytest.mark.client, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def told(published_sdk, served_fakes):
    ask = {"query": QUERY, "documents": DOCUMENTS, "text": TEXT, "png": IMAGE.hex()}
    return published_sdk.run("published_operations.py", url=served_fakes, **ask)


@pytest.fixture(scope="module")
def own(served_fakes):
    with SIEClient(served_fakes) as client:
        yield client


def as_told(value):
    if isinstance(value, np.ndarray):
        return {"dtype": str(value.dtype), "shape": list(value.shape), "values": value.tolist()}
    if isinstance(value, dict):
        return {key: as_told(part) for key, part in value.items() if key not in ("request", "timing")}
    return [as_told(part) for part in value] if isinstance(value, list) else value


def same(theirs, ours):
    """Whether the published client's result has what ours has, but for what it does not know."""
    ours, newer = as_told(ours), ("head_span", "tail_span")
    if isinstance(ours, list):
        return len(theirs) == len(ours) and all(map(same, theirs, ours))
    if isinstance(ours, dict):
        return all(same(theirs.get(key), part) for key, part in ours.items() if key not in newer and part != [])
    return theirs == ours


def test_documents_are_ranked_by_a_reranker_and_by_an_encoder(told, own):
    ids = [entry["item_id"] for entry in told["reranked"]["scores"]]
    assert ids == ["d1", "d2", "d3", "d0"]
    assert told["reranked"]["query_id"] == "q"
    assert [entry["rank"] for entry in told["reranked"]["scores"]] == [0, 1, 2, 3]
    assert told["reranked"]["usage"]["input_tokens"] == 4 * 2 + 11
    compared = own.score("sie-fake/embedder", QUERY, DOCUMENTS, options={"output_types": ["sparse"]})
    assert same(told["compared"], compared)
    assert told["compared"]["scores"][0]["item_id"] == "item-1"


def test_entities_relations_and_data_arrive_with_their_places(told, own):
    first, second = told["extracted"]
    assert [(entity["label"], entity["text"]) for entity in first["entities"]] == [
        ("person", "Ada"),
        ("place", "London,"),
    ]
    for entity in first["entities"]:
        assert TEXT[entity["start"] : entity["end"]] == entity["text"]
    assert [first["relations"][0][key] for key in ("head", "relation", "tail")] == ["Ada", "knows", "Grace"]
    assert (first["id"], second["id"], second["entities"]) == ("a", "item-1", [])
    assert told["one"]["data"] == {"person": ["Ada"]}
    assert same(told["one"], own.extract("sie-fake/extractor", TEXT, labels=["person"],
                                         output_schema={"properties": {"person": {}}}))  # fmt: skip


def test_images_and_audio_are_taken(told, own):
    (found,) = told["seen"]["objects"]
    assert (found["label"], found["score"]) == ("png", 1.0)
    assert "raised" not in told["heard"]
    assert same(told["image"], own.encode("sie-fake/media", {"images": [IMAGE]}))


def test_every_kind_of_output_arrives_as_our_own_client_gets_it(told, own):
    ours = own.encode("sie-fake/embedder", TEXT, output_types=["dense", "sparse", "multivector"])
    assert same(told["outputs"], ours)
    assert told["outputs"]["sparse"]["indices"]["dtype"] == "int32"
    assert len(told["outputs"]["multivector"]["shape"]) == 2


@pytest.mark.parametrize(
    ("what", "param", "message"),
    [
        ("cannot score", "model", "serves extract, not score"),
        ("too many", "items", "1000"),
        ("no labels", "params.labels", "params.labels is missing"),
        ("image to text", "items[0].images", "takes text, no image"),
    ],
)
def test_wrong_use_is_told_as_a_request_error(told, what, param, message):
    error = told[what]
    assert (error["raised"], error["code"], error["param"]) == ("RequestError", "INVALID_INPUT", param)
    assert message in error["message"]


def test_the_models_tell_what_they_give(told):
    assert told["models"]["sie-fake/reranker"] == ["score"]
    assert told["models"]["sie-fake/extractor"] == ["json"]
    assert told["models"]["sie-fake/embedder"] == ["dense", "sparse", "multivector"]
