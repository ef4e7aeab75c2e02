"""Clients of text-embeddings-inference against a live server: LlamaIndex, Haystack, the Hub's own."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from sie_sdk import SIEClient

from tests.conftest import run_server

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
FAKE, RERANKER = "sie-fake/embedder", "sie-fake/reranker"
TEXTS = ["a small model", "Ein kurzer Satz über Züge.", "短い文章 🚆", "behind a search " * 200]

pytestmark = [pytest.mark.client, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def reranking_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server whose root ranks: Haystack's ranker keeps nothing of a URL but its host."""
    env = {"SIE_DEFAULT_MODEL": RERANKER}
    with run_server(tmp_path_factory.mktemp("reranking"), env, ["--preload", RERANKER]) as server:
        yield server.url


def native(url: str, model: str, texts: list[str], **options) -> np.ndarray:
    with SIEClient(url) as client:
        return np.stack([result["dense"] for result in client.encode(model, texts, **options)])


def assert_close(vectors, references) -> None:
    assert np.shape(vectors) == np.shape(references)
    np.testing.assert_allclose(np.float32(vectors), references, atol=1e-3)


def test_llamaindex_embeds_at_the_root_and_below_a_model(other_apis, minilm_server):
    other = f"{minilm_server}/tei/{FAKE}"
    told = other_apis.run("llamaindex_tei.py", url=minilm_server, other=other, texts=TEXTS)
    references = native(minilm_server, MINILM, TEXTS)
    assert_close(told["documents"], references)
    assert_close(told["awaited"], references)
    assert_close(told["document"], references[0])
    assert_close([told["other"]], native(minilm_server, FAKE, TEXTS[:1]))
    assert_close([told["query"]], native(minilm_server, FAKE, [f"query: {TEXTS[0]}"]))


def test_llamaindex_and_the_hub_s_client_embed_on_a_server_and_a_cluster(other_apis, served_fakes):
    model, short = f"{served_fakes}/tei/{FAKE}", f"{served_fakes}/tei/sie-fake/dense"
    told = other_apis.run("llamaindex_tei.py", url=model, other=short, texts=TEXTS)
    references = native(served_fakes, FAKE, TEXTS)
    assert_close(told["documents"], references)
    assert_close(told["awaited"], references)
    calls = [{"url": model, "text": TEXTS, "prompt_name": "query"}, {"url": f"{served_fakes}/tei/no/such", "text": "x"}]
    query, unknown = other_apis.run("huggingface_tei.py", url=model, calls=calls)["answers"]
    assert_close(query["vectors"], native(served_fakes, FAKE, TEXTS, is_query=True))
    assert unknown["status"] == 404


def test_haystack_embeds_and_ranks(other_apis, minilm_server, reranking_server):
    documents = ["a house", "a red fox", "red, no fox"]
    told = other_apis.run(
        "haystack_tei.py",
        embedder=f"{minilm_server}/tei/{MINILM}",
        sparse=f"{minilm_server}/tei/{FAKE}",
        ranker=reranking_server,
        texts=TEXTS,
        query="red fox",
        documents=documents,
    )
    references = native(minilm_server, MINILM, TEXTS)
    assert_close(told["text"], references[0])
    lengths = np.linalg.norm(told["documents"], axis=1, keepdims=True)  # its default is `normalize=False`
    assert (lengths > 2).all()
    assert_close(told["documents"] / lengths, references)
    with SIEClient(minilm_server) as client:
        sparse = client.encode(FAKE, TEXTS[0], output_types=["sparse"])["sparse"]
    assert told["sparse"]["indices"] == sparse["indices"].tolist()
    np.testing.assert_allclose(told["sparse"]["values"], sparse["values"], rtol=1e-6)
    assert told["ranked"] == told["cut"] == [["a red fox", 1.0], ["red, no fox", 0.5]]
    assert told["raw"] == [["a red fox", 1.0], ["red, no fox", 0.5], ["a house", 0.0]]


def test_the_hub_s_client_posts_to_the_url_of_a_model(other_apis, minilm_server):
    model, fake = f"{minilm_server}/tei/{MINILM}", f"{minilm_server}/tei/{FAKE}"
    calls = [
        {"url": minilm_server, "text": TEXTS},
        {"url": model, "text": TEXTS[0], "normalize": True},
        {"url": f"{model}/embed", "text": TEXTS, "truncate": True, "truncation_direction": "left"},
        {"url": fake, "text": TEXTS, "prompt_name": "query", "dimensions": 8},
        {"url": model, "text": TEXTS, "truncate": False},
        {"url": model, "text": TEXTS, "dimensions": 7},
        {"url": f"{minilm_server}/tei/no/such", "text": "x"},
    ]
    told = other_apis.run("huggingface_tei.py", url=minilm_server, calls=calls)
    root, one, left, query, long, size, unknown = told["answers"]
    references = native(minilm_server, MINILM, TEXTS)
    assert_close(root["vectors"], references)
    assert_close(one["vectors"], references[:1])
    assert_close(left["vectors"][:3], references[:3])
    assert np.abs(left["vectors"][3] - references[3]).max() > 1e-2
    full = native(minilm_server, FAKE, TEXTS, is_query=True)[:, :8]
    assert_close(query["vectors"], full / np.linalg.norm(full, axis=1, keepdims=True))
    assert (long["status"], long["body"]["error_type"], long["body"]["param"]) == (413, "Validation", "inputs[3]")
    assert (size["status"], size["body"]["param"]) == (422, "dimensions")
    assert unknown["status"] == 404
    assert told["info"]["model_id"] == MINILM
    assert told["info"]["max_input_length"] == 256


def test_the_hub_s_client_compares_classifies_and_asks_after_models(other_apis, minilm_server):
    model, classifier = f"{minilm_server}/tei/{MINILM}", f"{minilm_server}/tei/sie-fake/extractor"
    labels = ["news", "sport", "law"]
    told = other_apis.run(
        "huggingface_tasks.py",
        urls=[minilm_server, model, f"{model}/similarity", classifier, f"{minilm_server}/tei/no/such"],
        source=TEXTS[0],
        sentences=TEXTS[1:],
        classifier=classifier,
        texts=[
            {"text": "sport sport news", "candidate_labels": labels},
            {"text": "sport", "candidate_labels": [*labels, " "]},
            {"text": "sport", "candidate_labels": labels, "hypothesis_template": "This is {}."},
        ],
        asked_after=[minilm_server, model, f"{minilm_server}/tei/no/such"],
    )
    root, below, route, extractor, unknown = told["similarities"]
    source, *others = native(minilm_server, MINILM, TEXTS)
    for given in (root, below, route):
        assert_close(given, np.stack(others) @ source)
    assert (extractor["status"], extractor["body"]["error_type"]) == (424, "Backend")
    assert unknown["status"] == 404
    best, blank, template = told["classes"]
    assert best == [["sport", pytest.approx(2 / 3)], ["news", pytest.approx(1 / 3)]]
    assert (blank["status"], blank["body"]["param"]) == (422, "parameters.candidate_labels[3]")
    assert (template["status"], template["body"]["param"]) == (422, "parameters.hypothesis_template")
    assert told["well"] == [True, True, False]
