"""The requests that Weaviate's modules and Elasticsearch's inference services send, as their documents state them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from sie_sdk import SIEClient

PAGE = (Path(__file__).parents[2] / "docs/use/integrations.md").read_text()
EMBEDDER, RERANKER = "sie-fake/embedder", "sie-fake/reranker"
TEXTS = ["a house", "a red fox"]


def vectors(url: str, **settings: Any) -> np.ndarray:
    with SIEClient(url) as client:
        return client.encode_many(EMBEDDER, TEXTS, progress=False, **settings).matrix()


def post(url: str, body: dict[str, Any], **headers: str) -> Any:
    reply = httpx.post(url, json=body, headers={"Authorization": "Bearer none", **headers})
    assert reply.status_code == 200, reply.text
    return reply.json()


def test_weaviates_openai_module_embeds(minilm_server) -> None:
    told = post(f"{minilm_server}/v1/embeddings", {"input": TEXTS, "model": EMBEDDER}, **{"OpenAI-Organization": "o"})
    assert [each["index"] for each in told["data"]] == [0, 1]
    np.testing.assert_allclose([each["embedding"] for each in told["data"]], vectors(minilm_server), atol=1e-6)
    assert told["usage"]["prompt_tokens"] > 0


@pytest.mark.parametrize("kind", ["document", "query"])
@pytest.mark.parametrize("route", ["/v1/embed", "/v2/embed"])
def test_weaviates_cohere_module_embeds_documents_and_queries(kind, route, minilm_server) -> None:
    body = {"texts": TEXTS, "model": EMBEDDER, "input_type": f"search_{kind}", "embedding_types": ["float"]}
    told = post(minilm_server + route, {**body, "truncate": "END"}, **{"Request-Source": "unspecified:weaviate"})
    expected = vectors(minilm_server, input_type=kind)
    np.testing.assert_allclose(told["embeddings"]["float"], expected, atol=1e-6)


def test_weaviates_ollama_module_embeds(minilm_server) -> None:
    told = post(f"{minilm_server}/api/embed", {"model": EMBEDDER, "input": TEXTS})
    np.testing.assert_allclose(told["embeddings"], vectors(minilm_server), atol=1e-6)


def elasticsearch(settings: dict[str, Any], url: str, model: str, **values: Any) -> Any:
    """Fill the templates of a `custom` service as Elasticsearch does, and send the request."""
    address = settings["url"].replace("http://host:8080", url)
    body = settings["request"].replace("org/model", model)
    for name, value in values.items():
        body = body.replace(f"${{{name}}}", json.dumps(value))
    headers = {name: value.replace("${api_key}", "none") for name, value in settings["headers"].items()}
    reply = httpx.post(address, content=body, headers=headers)
    assert reply.status_code == 200, reply.text
    return reply.json()


def at(path: str, reply: Any) -> list[Any]:
    """What a JSON path of names and `[*]` selects; the numbers of one vector stay together."""
    found = [reply]
    for name, every in re.findall(r"\.(\w+)(\[\*\])?", path.removesuffix("[*]")):
        found = [each[name] for each in found]
        found = [part for each in found for part in each] if every else found
    return found


def test_elasticsearchs_custom_service_embeds_and_reranks_as_the_page_says(minilm_server) -> None:
    blocks = [json.loads(each) for each in re.findall(r"```json\n(\{\n.*?)```", PAGE, re.DOTALL)]
    embed, rerank = (each["service_settings"] for each in blocks)
    told = elasticsearch(embed, minilm_server, EMBEDDER, input=TEXTS)
    found = at(embed["response"]["json_parser"]["text_embeddings"], told)
    np.testing.assert_allclose(found, vectors(minilm_server, input_type="document"), atol=1e-6)
    told = elasticsearch(rerank, minilm_server, RERANKER, query="red fox", input=TEXTS)
    parser = rerank["response"]["json_parser"]
    assert at(parser["reranked_index"], told) == [1, 0]
    assert at(parser["relevance_score"], told) == [1.0, 0.0]
