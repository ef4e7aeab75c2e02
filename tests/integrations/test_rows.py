"""Rows of the page on integrations with packages of their own; `EVERY_ROW=1` has them run, as in `make integrations`.

A row says which prompts its client applies: the vectors of a model whose prompts differ tell it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sie_sdk import SIEClient

from tests.clients.conftest import client_environment
from tests.integrations.cases import ROOT, run_cases

PAGE = (ROOT / "docs/use/integrations.md").read_text()
ROWS = Path(__file__).parent / "rows"
EMBEDDER, RERANKER, EXTRACTOR = "sie-fake/embedder", "sie-fake/reranker", "sie-fake/extractor"
DOCUMENTS, QUERY = ["a house", "a red fox", "a fox in the red house"], "red fox"
FRAMEWORKS = {
    "dspy_embedder": ("none", "query"),
    "haystack_jina": ("document", "query"),
    "langchain_cohere_clients": ("document", "query"),
    "llamaindex_openai": ("none", "none"),
    "mem0_memory": ("none", "none"),
    "txtai_index": ("none", "none"),
}
"""The prompts that documents and a query get through each."""
PUBLISHED = {
    "langchain": ("none", "query"),
    "llamaindex": ("none", "query"),
    "haystack": ("none", "query"),
    "chroma": ("none", "query"),
    "lancedb": ("none", "none"),
    "qdrant": ("none", "query"),
    "weaviate": ("none", "query"),
    "dspy": ("none", "query"),
}

pytestmark = [
    pytest.mark.client,
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.skipif("EVERY_ROW" not in os.environ, reason="EVERY_ROW is not set, as `make integrations` sets it"),
]


@pytest.fixture(scope="module")
def native(minilm_server: str) -> Iterator[SIEClient]:
    with SIEClient(minilm_server) as client:
        yield client


def asked(url: str) -> dict[str, Any]:
    texts = {"documents": DOCUMENTS, "query": QUERY, "person": "person=Ada lives here"}
    return {"url": url, "model": EMBEDDER, "reranker": RERANKER, "extractor": EXTRACTOR, "dims": 32, **texts}


def check_vectors(native: SIEClient, told: dict[str, Any], prompts: tuple[str, str]) -> None:
    """Compare with the vectors of the native route, with the prompts that this client is known to apply."""
    for name, texts, prompt in (("documents", DOCUMENTS, prompts[0]), ("query", [QUERY], prompts[1])):
        results = native.encode(EMBEDDER, texts, input_type=None if prompt == "none" else prompt)
        vectors = told[name] if name == "documents" else [told[name]]
        np.testing.assert_allclose(vectors, [each["dense"] for each in results], atol=1e-6, err_msg=name)


@pytest.mark.parametrize("row", FRAMEWORKS)
def test_a_framework_reaches_a_server_by_a_package_of_its_own(row, native, minilm_server) -> None:
    told = client_environment("frameworks").run(str(ROWS / f"{row}.py"), **asked(minilm_server))
    check_vectors(native, told, FRAMEWORKS[row])
    assert told.get("found", [DOCUMENTS[1]]) == [DOCUMENTS[1]]
    if "ranked" in told:
        assert told["ranked"] == [[1, 1.0], [2, 1.0]]


@pytest.fixture(scope="module")
def published(minilm_server) -> dict[str, dict[str, Any]]:
    return client_environment("published-integrations").run(str(ROWS / "published.py"), **asked(minilm_server))


@pytest.mark.parametrize("package", PUBLISHED)
def test_a_published_integration_works_as_its_page_says(package, published, native) -> None:
    told = published[package]
    assert "raised" not in told, told["raised"]
    check_vectors(native, told, PUBLISHED[package])
    if "sparse" in told:
        results = native.encode(EMBEDDER, DOCUMENTS, output_types=["sparse"])
        assert told["sparse"] == [each["sparse"]["indices"].tolist() for each in results]
    assert told.get("ranked", [DOCUMENTS[1]]) == [DOCUMENTS[1]]
    assert told.get("found", [DOCUMENTS[1]]) == [DOCUMENTS[1]]
    assert "'Ada'" in told.get("extracted", "'Ada'")
    assert told.get("dims", 32) == 32


@pytest.mark.parametrize("store", ["pgvector", "pymilvus"])
def test_a_recipe_of_the_page_finds_the_right_text(store, minilm_server) -> None:
    (code,) = [each for each in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if store in each]
    code = code.replace("http://127.0.0.1:8080", minilm_server).replace("prithivida/Splade_PP_en_v2", EMBEDDER)
    told = client_environment("databases").run(str(ROWS / "recipe.py"), code=code, paths=[str(ROOT / "sdk/python")])
    assert "a red fox sleeps" in told["printed"]


def test_every_store_of_a_framework_finds_planted_documents(minilm_server, tmp_path) -> None:
    run_cases(ROWS, client_environment("framework-stores"), minilm_server, tmp_path)
