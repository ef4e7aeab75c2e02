"""`/v1/rerank` and `/v2/rerank` over the real engine and the fakes."""

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

pytestmark = pytest.mark.asyncio(loop_scope="module")

MODELS = ("sie-fake/embedder", "sie-fake/reranker", "sie-fake/extractor")
RERANKER = "sie-fake/reranker"
DOCUMENTS = ["a house", "a red fox", "red, no fox", "a red hat"]
BODY = {"model": RERANKER, "query": "red fox", "documents": DOCUMENTS}
PATHS = ("/v1/rerank", "/v2/rerank")


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=OVER)
async def client(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[httpx.AsyncClient]:
    folder = tmp_path_factory.mktemp("models")
    async with serving(Settings(models_dir=folder, preload_models=MODELS, hf_fallback=False), request.param) as client:
        yield client


async def refused(client: httpx.AsyncClient, path: str, **changes: Any) -> tuple[str, str]:
    reply = await client.post(path, json=BODY | changes)
    assert reply.status_code == 400, reply.text
    body = reply.json()
    error = body["error"] if path == "/v1/rerank" else body
    assert "detail" not in body
    return error["param"], error["message"]


async def test_jina_s_shape(client: httpx.AsyncClient) -> None:
    reply = await client.post("/v1/rerank", json=BODY)
    assert reply.json() == {
        "object": "list",
        "model": RERANKER,
        "results": [
            {"index": 1, "relevance_score": 1.0},
            {"index": 2, "relevance_score": 0.5},
            {"index": 3, "relevance_score": 0.5},
            {"index": 0, "relevance_score": 0.0},
        ],
        "usage": {"prompt_tokens": 4 * 2 + 11, "total_tokens": 4 * 2 + 11},
    }
    assert reply.headers["X-SIE-Served-By"] == "local"
    assert float(reply.headers["X-Total-Time"]) > 0


async def test_cohere_s_shape(client: httpx.AsyncClient) -> None:
    reply = await client.post("/v2/rerank", json=BODY | {"top_n": 2})
    assert reply.json() == {
        "id": reply.headers["X-SIE-Request-ID"],
        "results": [{"index": 1, "relevance_score": 1.0}, {"index": 2, "relevance_score": 0.5}],
        "meta": {"api_version": {"version": "2"}, "tokens": {"input_tokens": 4 * 2 + 11}},
    }


@pytest.mark.parametrize("path", PATHS)
async def test_the_best_n_with_their_documents(client: httpx.AsyncClient, path: str) -> None:
    documents = [DOCUMENTS[0], {"text": DOCUMENTS[1]}, *DOCUMENTS[2:]]
    body = BODY | {"documents": documents, "top_n": 1, "return_documents": True}
    (only,) = (await client.post(path, json=body)).json()["results"]
    assert only == {"index": 1, "relevance_score": 1.0, "document": {"text": "a red fox"}}
    every = (await client.post(path, json=body | {"top_n": 99})).json()["results"]
    assert sorted(each["index"] for each in every) == [0, 1, 2, 3]


@pytest.mark.parametrize("path", PATHS)
async def test_the_ranking_of_an_encoder_is_that_of_score(client: httpx.AsyncClient, path: str) -> None:
    body = BODY | {"model": "sie-fake/embedder"}
    items = [{"text": text} for text in DOCUMENTS]
    scored = await client.post("/v1/score/sie-fake/embedder", json={"query": {"text": "red fox"}, "items": items})
    expected = [(int(each["item_id"][5:]), each["score"]) for each in scored.json()["scores"]]
    results = (await client.post(path, json=body)).json()["results"]
    assert [(each["index"], each["relevance_score"]) for each in results] == expected


@pytest.mark.parametrize("path", PATHS)
async def test_nulls_count_as_absent_and_two_underscores_as_a_slash(client: httpx.AsyncClient, path: str) -> None:
    nulls = BODY | {"top_n": None, "return_documents": None, "model": "sie-fake__reranker"}
    assert len((await client.post(path, json=nulls)).json()["results"]) == len(DOCUMENTS)


async def test_voyage_s_shape_is_in_the_reply_to_its_fields(client: httpx.AsyncClient) -> None:
    told = (await client.post("/v1/rerank", json=BODY | {"top_k": 2, "truncation": True})).json()
    assert told["data"] == told["results"] == (await client.post("/v1/rerank", json=BODY)).json()["results"][:2]
    assert "data" not in (await client.post("/v1/rerank", json=BODY | {"top_k": None})).json()


@pytest.mark.parametrize("path", PATHS)
async def test_voyage_s_fields_are_obeyed(client: httpx.AsyncClient, path: str) -> None:
    long = " ".join(f"w{number}" for number in range(600))
    assert len((await client.post(path, json=BODY | {"top_k": 3})).json()["results"]) == 3
    assert (await client.post(path, json=BODY | {"documents": [long], "truncation": True})).status_code == 200
    param, _ = await refused(client, path, documents=["x", long], truncation=False, model="sie-fake/embedder")
    assert param == "documents[1]"
    param, message = await refused(client, path, top_k=3, top_n=2)
    assert param == "top_n"
    assert "`top_k` 3" in message


NVIDIAS = {"model": RERANKER, "query": {"text": "red fox"}, "passages": [{"text": text} for text in DOCUMENTS]}


async def test_nvidia_s_shape(client: httpx.AsyncClient) -> None:
    expected = {
        "rankings": [
            {"index": 1, "logit": 1.0},
            {"index": 2, "logit": 0.5},
            {"index": 3, "logit": 0.5},
            {"index": 0, "logit": 0.0},
        ],
        "usage": {"prompt_tokens": 4 * 2 + 11, "total_tokens": 4 * 2 + 11},
    }
    for body in (NVIDIAS, NVIDIAS | {"query": "red fox", "passages": DOCUMENTS, "truncate": "END"}):
        assert (await client.post("/v1/ranking", json=body)).json() == expected


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"query": {"image": "x"}}, "query"),
        ({"query": None}, "query"),
        ({"passages": []}, "passages"),
        ({"passages": ["x", 1]}, "passages[1]"),
        ({"truncate": "end"}, "truncate"),
        ({"model": "sie-fake/extractor"}, "model"),
        ({"model": "sie-fake/embedder", "passages": ["x", "w " * 600], "truncate": "NONE"}, "passages[1]"),
    ],
)
async def test_nvidia_s_refusals_name_the_field(client: httpx.AsyncClient, changes, param: str) -> None:
    reply = await client.post("/v1/ranking", json=NVIDIAS | changes)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)


UNKNOWN = {
    "overlap_tokens": 80, "return_len": True, "rank_fields": ["text"], "user": "me", "stream": False,
    "priority": 3, "made_up": {"a": [1]},
}  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("unknown", [UNKNOWN, dict.fromkeys([*UNKNOWN, "raw_scores", "options"])])
async def test_what_other_servers_know_is_ignored(client: httpx.AsyncClient, path: str, unknown) -> None:
    documents = [{"text": DOCUMENTS[0], "title": "x"}, *DOCUMENTS[1:]]
    told = (await client.post(path, json=BODY | {"documents": documents} | unknown)).json()
    assert told["results"] == (await client.post(path, json=BODY)).json()["results"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(("written", "meant"), [("true", True), ("false", False)])
async def test_clients_of_texts_write_true_as_one(client: httpx.AsyncClient, path: str, written, meant) -> None:
    told = await client.post(path, json=BODY | {"return_documents": written, "raw_scores": written})
    assert (
        told.json()["results"] == (await client.post(path, json=BODY | {"return_documents": meant})).json()["results"]
    )


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("model", [RERANKER, "sie-fake/embedder"])
async def test_blank_documents_rank_last(client: httpx.AsyncClient, path: str, model: str) -> None:
    base = BODY | {"model": model}
    others = (await client.post(path, json=base)).json()["results"]
    mixed = ["", *DOCUMENTS[:2], " \n", *DOCUMENTS[2:], {"text": ""}]
    told = (await client.post(path, json=base | {"documents": mixed, "return_documents": True})).json()["results"]
    places = [1, 2, 4, 5]
    assert [each["index"] for each in told] == [*(places[each["index"]] for each in others), 0, 3, 6]
    scores = [each["relevance_score"] for each in told]
    assert scores[:4] == [each["relevance_score"] for each in others]
    assert scores[4:] == [min(0, scores[3])] * 3
    assert [each["document"]["text"] for each in told[4:]] == ["", " \n", ""]
    best = (await client.post(path, json=base | {"documents": mixed, "top_n": 1})).json()["results"]
    assert best == [{"index": told[0]["index"], "relevance_score": scores[0]}]


@pytest.mark.parametrize("path", PATHS)
async def test_nothing_but_blank_documents_is_a_ranking_too(client: httpx.AsyncClient, path: str) -> None:
    told = (await client.post(path, json=BODY | {"documents": ["", " "]})).json()["results"]
    assert told == [{"index": 0, "relevance_score": 0.0}, {"index": 1, "relevance_score": 0.0}]
    assert (await client.post(path, json=BODY | {"documents": [""], "model": "no/such"})).status_code == 404


@pytest.mark.parametrize(
    ("path", "field", "score"),
    [
        ("/v1/rerank", "documents", "relevance_score"),
        ("/v2/rerank", "documents", "relevance_score"),
        ("/tei/sie-fake/embedder/rerank", "documents", "relevance_score"),
        ("/tei/sie-fake/embedder/rerank", "texts", "score"),
        ("/tei/sie-fake/embedder", "texts", "score"),
    ],
)
async def test_an_instruction_is_obeyed_as_by_score(
    client: httpx.AsyncClient, path: str, field: str, score: str
) -> None:
    asked = {"query": {"text": "red fox"}, "items": [{"text": text} for text in DOCUMENTS]}
    native = "/v1/score/sie-fake/embedder"
    plain = (await client.post(native, json=asked)).json()["scores"]
    told = (await client.post(native, json=asked | {"instruction": "hat house"})).json()["scores"]
    assert plain != told
    body = {"model": "sie-fake/embedder", "query": "red fox", field: DOCUMENTS, "instruction": "hat house"}
    ranks = (await client.post(path, json=body)).json()
    ranks = ranks["results"] if isinstance(ranks, dict) else ranks
    expected = [(int(each["item_id"].removeprefix("item-")), each["score"]) for each in told]
    assert [(each["index"], each[score]) for each in ranks] == expected


async def test_documents_are_cut_to_so_many_tokens(client: httpx.AsyncClient) -> None:
    documents = ["a red fox", "fox, not red: a fox", "red " * 60 + "fox", "fox"]
    for most in (1, 3, 50):
        cut = [" ".join(text.split()[:most]) for text in documents]
        asked = await client.post("/v2/rerank", json=BODY | {"documents": documents, "max_tokens_per_doc": most})
        expected = await client.post("/v2/rerank", json=BODY | {"documents": cut})
        assert asked.json()["results"] == expected.json()["results"]
        assert asked.json()["meta"]["tokens"] == expected.json()["meta"]["tokens"]


async def test_options_are_the_model_s(client: httpx.AsyncClient) -> None:
    body = BODY | {"model": "sie-fake/embedder", "options": {"output_types": ["dense"]}}
    dense = (await client.post("/v1/rerank", json=body)).json()["results"]
    finest = (await client.post("/v1/rerank", json=body | {"options": None})).json()["results"]
    assert dense != finest
    param, message = await refused(client, "/v1/rerank", options={"nonsense": 1})
    assert param == "options.nonsense"
    assert "nonsense" in message


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("changes", "param", "says"),
    [
        ({"query": " "}, "query", "blank"),
        ({"query": ["a"]}, "query", "string"),
        ({"documents": []}, "documents", "1"),
        ({"documents": "one text"}, "documents", "list"),
        ({"documents": ["x", 7]}, "documents[1]", "string"),
        (
            {"documents": ["x", {"title": "x"}]},
            "documents[1]",
            'must be a text or {"text": "…"}, and is a map of title',
        ),
        ({"documents": [{"text": None, "image": "x"}]}, "documents[0]", "map of text, image"),
        ({"documents": ["x"] * (MAX_DOCUMENTS + 1)}, "documents", "1000"),
        ({"top_n": 0}, "top_n", "1"),
        ({"top_n": "2"}, "top_n", "integer"),
        ({"return_documents": "perhaps"}, "return_documents", "boolean"),
        ({"model": "sie-fake/extractor"}, "model", "extract"),
        ({"model": "../secret"}, "model", ".."),
    ],
)
async def test_a_wrong_field_is_named(client: httpx.AsyncClient, path: str, changes, param, says) -> None:
    named, message = await refused(client, path, **changes)
    assert named == param
    assert says in message


@pytest.mark.parametrize(("most", "says"), [(0, "1"), ("3", "integer")])
async def test_a_wrong_number_of_tokens_is_refused(client: httpx.AsyncClient, most: Any, says: str) -> None:
    param, message = await refused(client, "/v2/rerank", max_tokens_per_doc=most)
    assert param == "max_tokens_per_doc"
    assert says in message


async def test_what_the_model_refuses_is_told_by_the_field_s_own_name(client: httpx.AsyncClient) -> None:
    long = [" ", "word " * 100]
    param, message = await refused(client, "/v1/rerank", documents=long, options={"overflow_policy": "error"})
    assert param == "documents[1]"
    assert "64" in message


@pytest.mark.parametrize(("path", "key"), [("/v1/rerank", "error"), ("/v2/rerank", "message")])
async def test_an_unknown_model_is_a_404_in_the_client_s_own_envelope(client: httpx.AsyncClient, path, key) -> None:
    reply = await client.post(path, json=BODY | {"model": "no/such"})
    assert reply.status_code == 404
    error = reply.json()
    code = error["error"]["code"] if key == "error" else error["code"]
    assert code in ("model_not_found", "MODEL_NOT_FOUND")
    assert "no/such" in (error["error"]["message"] if key == "error" else error["message"])


@pytest.mark.parametrize("path", PATHS)
async def test_replies_are_as_described(client: httpx.AsyncClient, path: str) -> None:
    document = (await client.get("/openapi.json")).json()
    for body in (BODY, BODY | {"return_documents": True}, BODY | {"query": ""}, BODY | {"model": "no/such"}):
        check(document, path, "post", await client.post(path, json=body))
