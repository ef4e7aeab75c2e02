"""TEI's operations beside `/embed`, over the real engine: similarities, token vectors, classes, texts, `documents`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import numpy as np
import pytest
import pytest_asyncio

from sie_core.api.http.limits import MAX_DECODED_TOKENS, MAX_EMBEDDING_INPUTS
from sie_core.settings import Settings
from tests.api.dialects.test_tei import minilm_tokenizer, native, refused, vectors
from tests.api.ops.test_openapi import check
from tests.api.serving import OVER, serving

pytestmark = pytest.mark.asyncio(loop_scope="module")

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
EMBEDDER, TOKENS, RERANKER = "/tei/sie-fake/embedder", "/tei/sie-fake/tokens", "/tei/sie-fake/reranker"
EXTRACTOR = "/tei/sie-fake/extractor"
MODELS = (MINILM, *(path.removeprefix("/tei/") for path in (EMBEDDER, TOKENS, RERANKER, EXTRACTOR)))
SOURCE, SENTENCES = "a red fox", ["ein Haus", "", "a fox, red", "短い文章 🚆"]
SIMILARITY = {"inputs": {"source_sentence": SOURCE, "sentences": SENTENCES}}
SPORT = "sport sport news"
DOCUMENTS = ["a house", " ", "a red fox", "red, no fox"]
RERANK = {"query": "red fox", "documents": DOCUMENTS}


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=OVER)
async def client(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[httpx.AsyncClient]:
    settings = Settings(models_dir=tmp_path_factory.mktemp("models"), preload_models=MODELS, hf_fallback=False)
    async with serving(settings, request.param) as client:
        yield client


def labelled(text: Any, *labels: str, **body: Any) -> dict[str, Any]:
    return {"inputs": text, "parameters": {"candidate_labels": list(labels), "multi_label": False}} | body


@pytest.mark.parametrize("path", ["/similarity", "/", f"/tei/{MINILM}/similarity", f"/tei/{MINILM}"])
async def test_similarities_are_the_cosines_of_the_vectors(client: httpx.AsyncClient, path: str) -> None:
    source, *others = await vectors(client, "/embed", inputs=[SOURCE, *SENTENCES])
    reply = await client.post(path, json=SIMILARITY | {"parameters": {}})
    np.testing.assert_allclose(reply.json(), np.array(others) @ source, atol=1e-6)


async def test_similarities_read_the_prompt_and_the_end_that_is_cut(client: httpx.AsyncClient) -> None:
    async def told(**parameters: Any) -> list[float]:
        words = [f"w{number}" for number in range(600)]
        inputs = {"source_sentence": " ".join(words), "sentences": [" ".join(words[:30]), " ".join(words[-30:])]}
        reply = await client.post(f"{EMBEDDER}/similarity", json={"inputs": inputs, "parameters": parameters})
        return reply.json()

    plain, query = await told(), await told(prompt_name="query")
    left = await told(truncation_direction="left")
    assert plain == await told(truncate=True)
    assert len({tuple(each) for each in (plain, query, left)}) == 3


async def test_every_token_has_a_vector_where_the_model_keeps_them(client: httpx.AsyncClient) -> None:
    expected = await native(client, "sie-fake/tokens", SENTENCES[:1] + SENTENCES[2:], "multivector")
    told = (await client.post(f"{TOKENS}/embed_all", json={"inputs": SENTENCES[:1] + SENTENCES[2:]})).json()
    for given, each in zip(told, expected, strict=True):
        np.testing.assert_allclose(given, each["values"], rtol=1e-6)
    assert len(await vectors(client, f"{TOKENS}/embed_all", inputs=SOURCE)) == 1


@pytest.mark.parametrize("path", [f"{EXTRACTOR}/predict", EXTRACTOR])
async def test_classes_come_best_first_for_a_text_and_for_many(client: httpx.AsyncClient, path: str) -> None:
    best = [{"score": pytest.approx(2 / 3), "label": "sport"}, {"score": pytest.approx(1 / 3), "label": "news"}]
    labels = ("news", "sport", "law")
    assert (await client.post(path, json=labelled(SPORT, *labels))).json() == best
    assert (await client.post(path, json=labelled([SPORT], *labels))).json() == best
    many = (await client.post(path, json=labelled([[SPORT], ["law"], ["none"]], *labels))).json()
    assert many == [best, [{"score": 1.0, "label": "law"}], []]
    one = labelled(SPORT, *labels)
    one["parameters"]["top_k"] = 1
    assert (await client.post(path, json=one)).json() == best[:1]


async def test_the_root_of_a_model_that_only_extracts_takes_texts_for_texts_to_classify(client) -> None:
    param, message = await refused(client, EXTRACTOR, {"inputs": "plain words"})
    assert param == "parameters.candidate_labels"
    assert "what to look for" in message


async def test_texts_of_tokens_are_the_tokenizer_s(client: httpx.AsyncClient) -> None:
    tokenizer = minilm_tokenizer()
    ids = [tokenizer.encode(text).ids for text in SENTENCES if text]
    for path in ("/decode", f"/tei/{MINILM}/decode"):
        for skip in (True, False, None):
            told = (await client.post(path, json={"ids": ids, "skip_special_tokens": skip})).json()
            assert told == [tokenizer.decode(each, skip_special_tokens=skip is not False) for each in ids]
    assert (await client.post("/decode", json={"ids": ids[0]})).json() == ["ein haus"]


@pytest.mark.parametrize("path", [RERANKER, f"{RERANKER}/rerank"])
async def test_documents_are_ranked_as_by_the_rerank_route(client: httpx.AsyncClient, path: str) -> None:
    asked = RERANK | {"return_documents": True, "top_n": 3, "raw_scores": None}
    expected = (await client.post("/v1/rerank", json=asked | {"model": "sie-fake/reranker"})).json()
    assert (await client.post(path, json=asked)).json() == expected
    assert (await client.post(path, json=asked | {"model": "another"})).status_code == 400
    assert [each["index"] for each in expected["results"]] == [2, 3, 0]


async def test_at_the_root_documents_are_ranked_by_the_model_named_or_the_default(client: httpx.AsyncClient) -> None:
    for model in ("sie-fake/reranker", MINILM):
        expected = (await client.post("/v1/rerank", json=RERANK | {"model": model})).json()
        named = {"model": model} if model != MINILM else {}
        assert (await client.post("/rerank", json=RERANK | named)).json() == expected


async def test_blank_texts_rank_last(client: httpx.AsyncClient) -> None:
    for path in ("/rerank", f"{RERANKER}/rerank"):
        texts = {"query": "red fox", "texts": ["", *DOCUMENTS], "return_text": True}
        told = (await client.post(path, json=texts)).json()
        assert [each["index"] for each in told[-2:]] == [0, 2]
        assert [each["text"] for each in told[-2:]] == ["", " "]
        scores = [each["score"] for each in told]
        assert scores == sorted(scores, reverse=True)
    only = (await client.post("/rerank", json={"query": "x", "texts": [" "]})).json()
    assert only == [{"index": 0, "score": 0.0}]


@pytest.mark.parametrize(
    ("path", "body", "param", "says"),
    [
        ("/similarity", {}, "inputs", "required"),
        ("/similarity", {"inputs": "x"}, "inputs", "string"),
        ("/", {"inputs": {"sentences": ["x"]}}, "inputs.source_sentence", "required"),
        ("/similarity", {"inputs": {"source_sentence": "x", "sentences": []}}, "inputs.sentences", "1"),
        ("/similarity", {"inputs": {"source_sentence": "x", "sentences": ["y", 1]}}, "inputs.sentences[1]", "string"),
        (f"{EMBEDDER}/similarity", SIMILARITY | {"parameters": {"prompt_name": "s2p"}}, "parameters.prompt_name", "no"),
        ("/embed_all", {"inputs": []}, "inputs", "empty list"),
        ("/predict", {}, "inputs", "required"),
        ("/predict", {"inputs": []}, "inputs", "list of 0"),
        ("/predict", {"inputs": ["x", "y"]}, "inputs", "pair"),
        ("/predict", {"inputs": [["x"], ["y", "z"]]}, "inputs[1]", "pair"),
        ("/predict", {"inputs": [["x"], "y"]}, "inputs[1]", "list"),
        ("/predict", {"inputs": [["x"]] * (MAX_EMBEDDING_INPUTS + 1)}, "inputs", "2048"),
        (f"{EXTRACTOR}/predict", labelled("x", "a", " "), "parameters.candidate_labels[1]", "blank"),
        (f"{EXTRACTOR}/predict", labelled("x", "a", raw_scores=True), "raw_scores", "no option"),
        (f"{EXTRACTOR}/predict", {"inputs": "x", "parameters": {"hypothesis_template": "{}"}},
         "parameters.hypothesis_template", "hypothesis_template"),
        (f"{EXTRACTOR}/predict", {"inputs": "x", "parameters": {"function_to_apply": "softmax"}},
         "parameters.function_to_apply", "function_to_apply"),
        ("/decode", {"ids": []}, "ids", "token ids"),
        ("/decode", {"ids": "x"}, "ids", "token ids"),
        ("/decode", {"ids": [1, -1]}, "ids", "from 0"),
        ("/decode", {"ids": [[1], [True]]}, "ids[1]", "from 0"),
        ("/decode", {"ids": [[1], [10**6]]}, "ids[1]", "1000000"),
        ("/decode", {"ids": [2**40]}, "ids[0]", "no such token"),
        ("/decode", {"ids": [1] * (MAX_DECODED_TOKENS + 1)}, "ids", "131072"),
    ],
)  # fmt: skip
async def test_a_wrong_field_is_named(client: httpx.AsyncClient, path: str, body: Any, param: str, says: str) -> None:
    named, message = await refused(client, path, body)
    assert named == param
    assert says in message


@pytest.mark.parametrize(
    ("path", "body", "says"),
    [
        (f"{TOKENS}/similarity", SIMILARITY, "multivector"),
        (f"{RERANKER}/similarity", SIMILARITY, "score"),
        ("/embed_all", {"inputs": "x"}, "multivector"),
        ("/predict", {"inputs": "x"}, "extract"),
        (f"{EMBEDDER}/decode", {"ids": [1]}, "no texts"),
        (f"{EXTRACTOR}/predict", labelled("person=Ada", "person"), "entities"),
    ],
)
async def test_a_model_that_does_not_do_it_is_a_failed_dependency(client, path, body, says) -> None:
    param, message = await refused(client, path, body, 424)
    assert param == "model"
    assert says in message


async def test_what_is_wrong_with_documents_is_said_in_openai_s_envelope(client: httpx.AsyncClient) -> None:
    for path in ("/rerank", "/", f"{RERANKER}/rerank"):
        reply = await client.post(path, json=RERANK | {"documents": ["x", 1]})
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, "documents[1]")
    reply = await client.post("/rerank", json=RERANK | {"model": ""})
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "model")
    reply = await client.post("/rerank", json=RERANK | {"model": "no/such"})
    assert (reply.status_code, reply.json()["error"]["code"]) == (404, "model_not_found")


@pytest.mark.parametrize(
    ("path", "url", "bodies"),
    [
        ("/similarity", "/similarity", [SIMILARITY, {}]),
        ("/tei/{model}/embed_all", f"{TOKENS}/embed_all", [{"inputs": "x"}, {}]),
        ("/tei/{model}/predict", f"{EXTRACTOR}/predict", [labelled(SPORT, "sport"), labelled([["x"]], "x"), {}]),
        ("/decode", "/decode", [{"ids": [101]}, {"ids": -1}]),
        ("/rerank", "/rerank", [RERANK, RERANK | {"documents": []}, {}]),
        ("/", "/", [SIMILARITY, RERANK, RERANK | {"documents": []}]),
        ("/tei/{model}", EXTRACTOR, [labelled(SPORT, "sport")]),
        ("/embeddings", "/embeddings", [{"input": "x"}, {}]),
        ("/tei/{model}/v1/embeddings", f"{EMBEDDER}/v1/embeddings", [{"input": "x"}, {}]),
    ],
)
async def test_replies_are_as_described(client: httpx.AsyncClient, path: str, url: str, bodies: list[Any]) -> None:
    document = (await client.get("/openapi.json")).json()
    for body in bodies:
        check(document, path, "post", await client.post(url, json=body))
