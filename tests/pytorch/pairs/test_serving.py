"""One model of each kind of pairs behind a live server, asked by our own client."""

import math
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import yaml
from sie_sdk import InputTooLongError, RequestError, SIEClient
from torch.nn import Identity, Sigmoid

from tests.conftest import run_server
from tests.pytorch.pairs.support import (
    DOCUMENTS,
    NLI,
    QUERY,
    pairs,
    reference,
    score,
    serve,
    write_classifier,
    write_language_model,
)
from tests.pytorch.pairs.test_language_models import ANSWERS, QWEN3_INSTRUCTION, published_scores
from tests.pytorch.pairs.test_zero_shot import expected, pipeline

TEXTS = [text for text in DOCUMENTS if text]
LONG = "the index keeps what it has read " * 100


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pairs")
    write_classifier("bert", folder / "models/test/reranker")
    write_classifier("deberta-v2", folder / "models/test/entailment", labels=NLI)
    write_language_model("qwen3", folder / "weights")
    config = {
        "sie_id": "test/asked",
        "weights_path": str(folder / "weights"),
        "profiles": {"default": {"adapter_path": "pytorch-pairs", "adapter_options": {"loadtime": ANSWERS}}},
    }
    (folder / "models/asked.yaml").write_text(yaml.safe_dump(config))
    return folder


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[SIEClient]:
    environment = {"SIE_DEFAULT_COMPUTE_PRECISION": "float32"}
    with run_server(folder, environment) as server, SIEClient(server.url) as client:
        yield client


def ranked(client: SIEClient, model: str, documents: list[str], **fields: object) -> dict[str, float]:
    result = client.score(model, QUERY, documents, **fields)
    assert [each["rank"] for each in result["scores"]] == list(range(len(documents)))
    scores = [each["score"] for each in result["scores"]]
    assert scores == sorted(scores, reverse=True)
    return {each["item_id"]: each["score"] for each in result["scores"]}


def test_a_cross_encoder_ranks(client: SIEClient, folder: Path) -> None:
    answers = reference(folder / "models/test/reranker").predict(pairs(TEXTS))
    found = ranked(client, "test/reranker", TEXTS)
    assert [found[f"item-{index}"] for index in range(len(TEXTS))] == pytest.approx(answers, abs=1e-5)
    assert client.get_model("test/reranker")["outputs"] == ["score"]


@pytest.mark.parametrize(
    ("path", "fields", "activation"),
    [
        ("/tei/test/reranker/rerank", {"texts": TEXTS, "raw_scores": True}, Identity()),
        ("/tei/test/reranker/rerank", {"texts": TEXTS}, Sigmoid()),
        ("/v2/rerank", {"model": "test/reranker", "documents": TEXTS}, Sigmoid()),
        ("/v1/rerank", {"model": "test/reranker", "documents": TEXTS}, Sigmoid()),
        ("/v1/rerank", {"model": "test/reranker", "documents": TEXTS, "raw_scores": True}, Identity()),
        (
            "/v1/rerank",
            {"model": "test/reranker", "documents": TEXTS, "options": {"activation": "identity"}},
            Identity(),
        ),
    ],
)
def test_routes_of_other_apis_choose_the_activation(client: SIEClient, folder: Path, path, fields, activation) -> None:
    answers = reference(folder / "models/test/reranker").predict(pairs(TEXTS), activation_fn=activation)
    told = httpx.post(f"{client.base_url}{path}", json={"query": QUERY, **fields}, timeout=60).raise_for_status().json()
    results = told["results"] if isinstance(told, dict) else told
    assert len(results) == len(TEXTS)
    for each in results:
        assert each.get("relevance_score", each.get("score")) == pytest.approx(answers[each["index"]], abs=1e-5)


def test_a_model_whose_own_scores_are_logits_is_between_0_and_1_in_jina_s_shape(client: SIEClient) -> None:
    logits = ranked(client, "test/entailment", TEXTS)
    assert max(logits.values()) > 1 or min(logits.values()) < 0
    body = {"model": "test/entailment", "query": QUERY, "documents": TEXTS}
    told = httpx.post(f"{client.base_url}/v1/rerank", json=body, timeout=60).raise_for_status().json()
    for each in told["results"]:
        expected = 1 / (1 + math.exp(-logits[f"item-{each['index']}"]))
        assert each["relevance_score"] == pytest.approx(expected, abs=1e-5)


def test_a_language_model_ranks_with_an_instruction(client: SIEClient, folder: Path) -> None:
    for instruction in (None, "judge"):
        answers = published_scores(folder / "weights", TEXTS, instruction or QWEN3_INSTRUCTION)
        found = ranked(client, "test/asked", TEXTS, instruction=instruction)
        assert [found[f"item-{index}"] for index in range(len(TEXTS))] == pytest.approx(answers, abs=1e-5)


@pytest.mark.parametrize("multi_label", [False, True])
def test_texts_are_classified_by_labels(multi_label: bool, client: SIEClient, folder: Path) -> None:
    labels = ["animals", "search", "die Straße"]
    asked = {"multi_label": multi_label, "hypothesis_template": "It is about {}."}
    answers = expected(pipeline(folder / "models/test/entailment"), TEXTS, *labels, **asked)
    results = client.extract("test/entailment", TEXTS, labels=labels, options=asked)
    for result, answer in zip(results, answers, strict=True):
        assert [each["label"] for each in result["classifications"]] == list(answer)
        assert [each["score"] for each in result["classifications"]] == pytest.approx(list(answer.values()), abs=1e-5)
        assert result["entities"] == []


@pytest.mark.parametrize("multi_label", [False, True])
def test_tei_s_predict_gives_the_same_classes(client: SIEClient, multi_label: bool) -> None:
    labels, asked = ["animals", "search"], {"multi_label": multi_label, "hypothesis_template": "It is about {}."}
    results = client.extract("test/entailment", TEXTS, labels=labels, options=asked)
    body = {"inputs": [[text] for text in TEXTS], "parameters": {"candidate_labels": labels, **asked}}
    told = httpx.post(f"{client.base_url}/tei/test/entailment/predict", json=body, timeout=60).raise_for_status().json()
    for given, result in zip(told, results, strict=True):
        assert [each["label"] for each in given] == [each["label"] for each in result["classifications"]]
        scores = [each["score"] for each in result["classifications"]]
        assert [each["score"] for each in given] == pytest.approx(scores, abs=1e-5)
    refused = httpx.post(f"{client.base_url}/tei/test/entailment", json=body | {"raw_scores": True}, timeout=60)
    assert (refused.status_code, refused.json()["param"]) == (422, "raw_scores")


def test_the_tokens_of_a_model_of_pairs_become_text_again(client: SIEClient) -> None:
    url = f"{client.base_url}/tei/test/reranker"
    (tokens,) = httpx.post(f"{url}/tokenize", json={"inputs": "a query"}, timeout=60).raise_for_status().json()
    told = httpx.post(f"{url}/decode", json={"ids": [token["id"] for token in tokens]}, timeout=60)
    assert told.raise_for_status().json() == ["a query"]


def test_an_entailment_model_scores_too(client: SIEClient, folder: Path) -> None:
    found = ranked(client, "test/entailment", TEXTS)
    answers = score(serve(folder / "models/test/entailment"), TEXTS)
    assert [found[f"item-{index}"] for index in range(len(TEXTS))] == pytest.approx(answers, abs=1e-5)


def test_truncation_is_told_and_may_be_refused(client: SIEClient) -> None:
    (result,) = client.extract("test/entailment", [LONG], labels=["a"])
    assert result["truncated"]["kept"] < result["truncated"]["tokens"]
    with pytest.raises(InputTooLongError) as refused:
        client.score("test/reranker", QUERY, ["short", LONG], truncate="error")
    assert refused.value.param == "items[1].text"


def test_wrong_use_is_answered_with_the_field(client: SIEClient) -> None:
    for call, param in (
        (lambda: client.extract("test/entailment", "a"), "labels"),
        (lambda: client.extract("test/entailment", "a", labels=["b"], options={"activatoin": "sigmoid"}), "activatoin"),
        (lambda: client.score("test/reranker", QUERY, ["a"], options={"score_label": "b"}), "options.score_label"),
        (lambda: client.score("test/reranker", QUERY, ["a"], options={"true_token": "b"}), "true_token"),
    ):
        with pytest.raises(RequestError) as refused:
            call()
        assert param in (refused.value.param or "")
    with pytest.raises(RequestError, match="score"):
        client.encode("test/reranker", "a")
    with pytest.raises(RequestError, match="extract"):
        client.extract("test/reranker", "a", labels=["b"])
