"""Replies of every dialect pass the checks of its clients, in Python and JavaScript, from a server and a gateway."""

from __future__ import annotations

from typing import Any

import pytest
from sie_sdk import SIEClient

EMBEDDER = "sie-fake/embedder"
RERANKER = "sie-fake/reranker"
QUERY = "red fox"
TEXTS = ["a house", "a red fox", "fox"]
TYPES = ["float", "base64", "int8", "uint8", "binary", "ubinary"]

pytestmark = [pytest.mark.client, pytest.mark.timeout(600)]


def test_clients_in_javascript_that_check_replies_take_them(javascript_clients, served_fakes):
    told = javascript_clients.run(
        "replies.mjs",
        url=served_fakes,
        embedder=EMBEDDER,
        reranker=RERANKER,
        classifier="sie-fake/extractor",
        texts=TEXTS,
        query=QUERY,
    )
    raised = {name: answer for name, answer in told.items() if "raised" in answer}
    assert raised == {}
    with SIEClient(served_fakes) as client:
        plain, queries = (
            [pytest.approx(each["dense"], abs=1e-5) for each in client.encode(EMBEDDER, TEXTS, **role)]
            for role in ({}, {"input_type": "query"})
        )
    assert told["vercelEmbed"]["embeddings"] == queries
    assert told["vercelEmbed"]["usage"] == {
        "tokens": told["vercelEmbed"]["response"]["body"]["meta"]["tokens"]["input_tokens"]
    }
    assert told["vercelEmbed"]["usage"]["tokens"] > 0
    assert told["compatibleEmbed"]["embeddings"] == plain
    assert [len(each) for each in told["hubEmbed"]] == [len(each.expected) for each in plain]
    assert [each["index"] for each in told["vercelRerank"]["ranking"]] == [1, 2, 0]
    assert len(told["hubSimilarity"]) == len(TEXTS)


def test_openai_s_client_may_name_a_prompt_as_its_model_does(openai_clients, served_fakes):
    call = {"model": EMBEDDER, "input": TEXTS}
    names = [("passage", "document"), ("search_query", "query")]
    calls = [call | {"extra_body": {field: name}} for name, _ in names for field in ("input_type", "task")]
    told = openai_clients.run("openai_embeddings.py", url=served_fakes, calls=calls)["answers"]
    with SIEClient(served_fakes) as client:
        for answer, role in zip(told, (role for _, role in names for _ in range(2)), strict=True):
            expected = [
                pytest.approx(each["dense"], abs=1e-5) for each in client.encode(EMBEDDER, TEXTS, input_type=role)
            ]
            assert answer["vectors"] == expected


def test_replies_are_what_the_types_of_python_clients_say(other_apis, served_fakes):
    embed: dict[str, Any] = {"model": EMBEDDER, "texts": TEXTS, "input_type": "search_query"}
    calls = [
        ("/v1/embeddings", "openai", {"model": EMBEDDER, "input": TEXTS}),
        (f"/tei/{EMBEDDER}/v1/embeddings", "openai", {"model": "any", "input": TEXTS}),
        ("/v1/embed", "cohere plain", embed),
        ("/v1/embed", "cohere types", embed | {"embedding_types": TYPES}),
        ("/v2/embed", "cohere types", embed | {"embedding_types": TYPES}),
        ("/v2/rerank", "cohere rerank", {"model": RERANKER, "query": QUERY, "documents": TEXTS}),
    ]
    assert other_apis.run("replies.py", url=served_fakes, calls=calls) == [None] * len(calls)
