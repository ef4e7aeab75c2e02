"""vLLM's scores and classes over the real engine: the fakes, and a classifier of random weights."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import pytest_asyncio

from sie_core.api.http.limits import MAX_DOCUMENTS
from sie_core.settings import Settings
from tests.api.ops.test_openapi import check
from tests.api.serving import OVER, serving
from tests.pytorch.pairs.support import write_classifier

pytestmark = pytest.mark.asyncio(loop_scope="module")

RERANKER, EMBEDDER, CLASSIFIER = "sie-fake/reranker", "sie-fake/embedder", "tiny/classifier"
CLASSES = ("negative", "neutral", "positive")
QUERY, DOCUMENTS = "red fox", ["a house", "a red fox", "red, no fox"]
ASKED: dict[str, Any] = {"model": RERANKER, "text_1": QUERY, "text_2": DOCUMENTS}


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=OVER)
async def client(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[httpx.AsyncClient]:
    folder = tmp_path_factory.mktemp("models")
    write_classifier("bert", folder / CLASSIFIER, labels=dict(enumerate(CLASSES)))
    models = (RERANKER, EMBEDDER, CLASSIFIER)
    async with serving(Settings(models_dir=folder, preload_models=models, hf_fallback=False), request.param) as client:
        yield client


async def scores(client: httpx.AsyncClient, **changes: Any) -> list[float]:
    body = {name: value for name, value in (ASKED | changes).items() if value is not None}
    reply = await client.post("/score", json=body)
    assert reply.status_code == 200, reply.text
    assert [each["index"] for each in reply.json()["data"]] == list(range(len(reply.json()["data"])))
    return [each["score"] for each in reply.json()["data"]]


async def refused(client: httpx.AsyncClient, path: str, body: dict[str, Any], status: int = 400) -> tuple[str, str]:
    reply = await client.post(path, json=body)
    assert reply.status_code == status, reply.text
    return reply.json()["error"]["param"], reply.json()["error"]["message"]


@pytest.mark.parametrize("path", ["/score", "/v1/score", "/v1/score/"])
async def test_a_text_is_scored_with_each_of_several_in_their_order(client: httpx.AsyncClient, path: str) -> None:
    reply = await client.post(path, json=ASKED)
    told = reply.json()
    assert isinstance(told.pop("created"), int)
    assert told == {
        "id": reply.headers["X-SIE-Request-ID"],
        "object": "list",
        "model": RERANKER,
        "data": [
            {"index": 0, "object": "score", "score": 0.0},
            {"index": 1, "object": "score", "score": 1.0},
            {"index": 2, "object": "score", "score": 0.5},
        ],
        "usage": {
            "prompt_tokens": 3 * 2 + 8, "total_tokens": 3 * 2 + 8,
            "completion_tokens": 0, "prompt_tokens_details": None,
        },
    }  # fmt: skip


async def test_two_texts_are_one_pair(client: httpx.AsyncClient) -> None:
    assert await scores(client, text_2=DOCUMENTS[1]) == [1.0]
    assert await scores(client, text_1=[QUERY], text_2=DOCUMENTS[1:]) == [1.0, 0.5]


async def test_the_other_names_mean_the_same(client: httpx.AsyncClient) -> None:
    assert await scores(client, text_1=None, text_2=None, queries=QUERY, documents=DOCUMENTS) == [0.0, 1.0, 0.5]


@pytest.mark.parametrize("model", [RERANKER, EMBEDDER])
async def test_each_of_several_texts_is_scored_with_its_own(client: httpx.AsyncClient, model: str) -> None:
    queries = ["red fox", "house", "red fox", "no"]
    documents = ["a red fox", "a house", "fox", "red, no fox"]
    expected = [
        (await scores(client, model=model, text_1=query, text_2=document))[0]
        for query, document in zip(queries, documents, strict=True)
    ]
    assert await scores(client, model=model, text_1=queries, text_2=documents) == pytest.approx(expected, abs=1e-6)
    assert len(set(expected)) > 1


async def test_tokens_of_pairs_are_counted_once_each(client: httpx.AsyncClient) -> None:
    body = {"model": RERANKER, "text_1": ["red fox", "house"], "text_2": ["fox", "a house"]}
    reply = await client.post("/score", json=body)
    assert reply.json()["usage"]["prompt_tokens"] == (2 + 1) + (1 + 2)


async def test_the_end_that_is_cut_can_be_said(client: httpx.AsyncClient) -> None:
    asked = {"model": EMBEDDER, "text_1": "house", "text_2": "house " + "x " * 600, "truncate_prompt_tokens": -1}
    plain, right, left = [await scores(client, **asked, truncation_side=side) for side in (None, "right", "left")]
    assert plain == right > left


@pytest.mark.parametrize(
    ("body", "param", "says"),
    [
        ({}, "text_1", "none of them"),
        ({"text_1": "x"}, "text_1", "`queries` and `documents`"),
        ({"text_1": "x", "documents": "y"}, "text_1", "`text_1`, `documents`"),
        ({"text_1": ["x", "y"], "text_2": ["z"] * 3}, "text_1", "2 texts and `text_2` 3"),
        ({"text_1": ["x", "y"], "text_2": "z"}, "text_1", "2 texts"),
        ({"text_1": "x", "text_2": []}, "text_2", "a list of 0"),
        ({"text_1": "x", "text_2": ["y", 1]}, "text_2[1]", "the number 1"),
        ({"text_1": " ", "text_2": "y"}, "text_1", "blank"),
        ({"text_1": ["x", " "], "text_2": ["y", "z"]}, "text_1[1]", "blank"),
        ({"text_1": "x", "text_2": "y", "max_tokens_per_doc": 8}, "max_tokens_per_doc", "leave it out"),
        ({"queries": "x", "documents": ["y"] * (MAX_DOCUMENTS + 1)}, "documents", str(MAX_DOCUMENTS)),
    ],
)
async def test_a_wrong_body_is_refused_by_name(client: httpx.AsyncClient, body, param: str, says: str) -> None:
    named, message = await refused(client, "/score", {"model": RERANKER} | body)
    assert named == param
    assert says in message


async def test_what_the_model_refuses_is_named_by_its_place_in_the_whole(client: httpx.AsyncClient) -> None:
    body = {"model": CLASSIFIER, "text_1": "x", "text_2": "y"}
    assert (await refused(client, "/score", body))[0] == "model"
    assert (await refused(client, "/score", body | {"model": "no/such"}, 404))[0] == "model"


@pytest.mark.parametrize("path", ["/classify", "/v1/classify"])
async def test_texts_are_classified_as_by_predict(client: httpx.AsyncClient, path: str) -> None:
    texts = ["fox", "the lazy dog jumps"]
    told = (await client.post(path, json={"model": CLASSIFIER, "input": texts})).json()
    predicted = await client.post(f"/tei/{CLASSIFIER}/predict", json={"inputs": [[text] for text in texts]})
    for place, (row, classes) in enumerate(zip(told["data"], predicted.json(), strict=True)):
        by_label = {each["label"]: each["score"] for each in classes}
        assert row == {
            "index": place,
            "label": classes[0]["label"],
            "probs": [pytest.approx(by_label[name], abs=1e-6) for name in CLASSES],
            "num_classes": 3,
        }
    assert (told["object"], told["model"]) == ("list", CLASSIFIER)
    assert told["usage"]["total_tokens"] > 0


async def test_classes_may_be_given_as_logits(client: httpx.AsyncClient) -> None:
    async def probs(**more: Any) -> list[float]:
        reply = await client.post("/classify", json={"model": CLASSIFIER, "input": "fox"} | more)
        return reply.json()["data"][0]["probs"]

    assert sum(await probs()) == pytest.approx(1, abs=1e-6)
    assert sum(await probs(use_activation=False)) != pytest.approx(1, abs=1e-3)
    assert await probs(activation=False) == await probs(use_activation=False)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"input": []}, "input"),
        ({"input": ["x", 1]}, "input[1]"),
        ({"input": [1, 2]}, "input[0]"),
        ({"model": RERANKER, "input": "x"}, "model"),
        ({"model": "sie-fake/extractor", "input": "x"}, "model"),
    ],
)
async def test_what_cannot_be_classified_is_refused(client: httpx.AsyncClient, body, param: str) -> None:
    assert (await refused(client, "/classify", {"model": CLASSIFIER} | body))[0] == param


async def test_replies_are_as_described(client: httpx.AsyncClient) -> None:
    document = (await client.get("/openapi.json")).json()
    classified = {"model": CLASSIFIER, "input": "fox"}
    for path, body in (("/score", ASKED), ("/score", {}), ("/classify", classified), ("/v1/classify", {})):
        check(document, path, "post", await client.post(path, json=body))
