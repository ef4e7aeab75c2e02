"""litellm, unchanged, embeds and reranks against a live server through each of its providers for such servers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sie_sdk import SIEClient

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
FAKE = "sie-fake/embedder"
QUERY = "Which animal is a fox?"
DOCUMENTS = ["A house in the snow", "The fox is a small red animal", "Foxes hunt at night", "短い文章 🚆"]
EMBEDDING: list[tuple[str, str, dict[str, Any]]] = [
    ("infinity", "/v1", {}),
    ("hosted_vllm", "/v1", {}),
    ("jina_ai", "/v1", {}),
    ("cohere", "/v1/embed", {"encoding_format": "float"}),
    ("cohere", "/v2/embed", {}),
]
SIZES = [("jina_ai", "/v1", {}), ("cohere", "/v2/embed", {"input_type": "search_query"})]
RERANK = [
    ("infinity", ""),
    ("infinity", "/v1"),
    ("hosted_vllm", ""),
    ("hosted_vllm", "/v1"),
    ("jina_ai", ""),
    ("cohere", ""),
    ("cohere", "/v2/rerank"),
]
"""Providers, and what stands behind the server's address in `api_base`."""

pytestmark = [pytest.mark.client, pytest.mark.timeout(600)]


def calls() -> dict[str, list[dict[str, Any]]]:
    """Everything that is asked, in one process: importing litellm takes seconds."""
    embed = {"do": "embedding", "input": DOCUMENTS}
    rank = {"do": "rerank", "query": QUERY, "documents": DOCUMENTS}
    return {
        "embed": [
            embed | {"model": f"{provider}/{MINILM}", "api_base": path, **more} for provider, path, more in EMBEDDING
        ],
        "sizes": [
            embed | {"model": f"{provider}/{FAKE}", "api_base": path, "dimensions": 8, **more}
            for provider, path, more in SIZES
        ],
        "rank": [
            rank | {"model": f"{provider}/{MINILM}", "api_base": path, **more}
            for provider, path in RERANK
            # By itself litellm asks for documents, and reads those of `infinity/` as plain texts, as Infinity has them.
            for more in ({"return_documents": False}, *([] if provider == "infinity" else [{"top_n": 2}]))
        ],
        "unknown": [rank | {"model": f"{provider}/no/such", "api_base": path} for provider, path in RERANK],
    }


@pytest.fixture(scope="module")
def answered(litellm_client, minilm_server) -> dict[str, list[tuple[dict[str, Any], dict[str, Any]]]]:
    """Each call with its answer."""
    asked = calls()
    every = [call | {"api_base": minilm_server + call["api_base"]} for group in asked.values() for call in group]
    answers = iter(litellm_client.run("litellm_calls.py", calls=every))
    return {name: [(call, next(answers)) for call in group] for name, group in asked.items()}


def test_every_provider_embeds(answered, minilm_server):
    with SIEClient(minilm_server) as client:
        expected = [result["dense"] for result in client.encode(MINILM, DOCUMENTS)]
    for call, answer in answered["embed"]:
        assert "raised" not in answer, (call, answer)
        np.testing.assert_allclose(answer["vectors"], expected, atol=1e-3, err_msg=str(call))
        assert answer["tokens"] > 0, call


def test_sizes_are_passed_on(answered):
    for call, answer in answered["sizes"]:
        assert np.array(answer["vectors"]).shape == (len(DOCUMENTS), 8), call


def test_every_provider_reranks(answered, minilm_server):
    with SIEClient(minilm_server) as client:
        scores = client.score(MINILM, QUERY, DOCUMENTS)["scores"]
    expected = [[int(each["item_id"].removeprefix("item-")), pytest.approx(each["score"], abs=1e-3)] for each in scores]
    for call, answer in answered["rank"]:
        assert "raised" not in answer, (call, answer)
        assert answer["results"] == expected[: call.get("top_n")], call
        if "return_documents" not in call:
            assert answer["documents"] == [DOCUMENTS[index] for index, _ in answer["results"]], call


def test_an_unknown_model_is_told(answered):
    for call, answer in answered["unknown"]:
        assert answer["raised"] == "NotFoundError", (call, answer)
        assert "no/such" in answer["message"]
