"""Both of Cohere's own clients embed against a live server."""

from __future__ import annotations

import base64

import numpy as np
import pytest
from sie_sdk import SIEClient

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
FAKE = "sie-fake/embedder"
MEDIA = "sie-fake/media"
TEXTS = ["a small model", "", "Ein kurzer Satz über Züge.", "短い文章 🚆"]
PICTURE = b"pixels\xff\xfe"

pytestmark = [pytest.mark.client, pytest.mark.timeout(600)]


def native(url: str, model: str, items: list, **choices) -> np.ndarray:
    with SIEClient(url) as client:
        return np.array([result["dense"] for result in client.encode(model, items, **choices)])


def test_both_clients_embed_texts_as_the_native_route_does(other_apis, minilm_server):
    arguments = {"model": MINILM, "texts": TEXTS, "input_type": "search_document"}
    by_type = arguments | {"embedding_types": ["float", "int8", "ubinary", "binary", "base64"]}
    calls = [["1", arguments], ["1", by_type], ["2", by_type], ["2", arguments]]
    plain, *typed, default = other_apis.run("cohere_embed.py", url=minilm_server, calls=calls)
    exact = native(minilm_server, MINILM, TEXTS)
    np.testing.assert_allclose(plain["embeddings"], exact, atol=1e-3)
    np.testing.assert_allclose(default["embeddings"]["float"], exact, atol=1e-3)
    assert (plain["response_type"], plain["version"]) == ("embeddings_floats", "1")
    assert [each["version"] for each in (*typed, default)] == ["1", "2", "2"]
    for answer in typed:
        found = answer["embeddings"]
        np.testing.assert_allclose(found["float"], exact, atol=1e-3)
        decoded = [np.frombuffer(base64.b64decode(text), "<f4") for text in found["base64"]]
        np.testing.assert_allclose(decoded, exact, atol=1e-3)
        assert np.abs(np.array(found["int8"]) - native(minilm_server, MINILM, TEXTS, output_dtype="int8")).max() <= 1
        assert np.array(found["ubinary"]).shape == (len(TEXTS), 48)
        np.testing.assert_array_equal(np.array(found["binary"]), np.array(found["ubinary"]) - 128)
        assert answer["texts"] == TEXTS


def test_many_texts_sizes_and_roles(other_apis, served_fakes):
    texts = [f"text number {place}" for place in range(300)]
    base = {"model": FAKE, "texts": texts, "input_type": "search_query", "output_dimension": 16}
    (answer,) = other_apis.run("cohere_embed.py", url=served_fakes, calls=[["2", base]])
    with SIEClient(served_fakes) as client:
        results = client.encode(FAKE, texts, is_query=True, options={"dimensions": 16})
    np.testing.assert_allclose(answer["embeddings"]["float"], [each["dense"] for each in results], atol=1e-5)


def test_pictures_and_mixed_inputs(other_apis, served_fakes):
    uri = "data:image/png;base64," + base64.b64encode(PICTURE).decode()
    bare = "data:image/png;base64," + base64.urlsafe_b64encode(PICTURE).decode().rstrip("=")
    content = [{"type": "text", "text": "a fox"}, {"type": "image_url", "image_url": {"url": uri}}]
    calls = [
        ["1", {"model": MEDIA, "images": [uri], "input_type": "image", "embedding_types": ["float"]}],
        ["2", {"model": MEDIA, "images": [bare], "input_type": "image", "embedding_types": ["float"]}],
        ["2", {"model": MEDIA, "inputs": [{"content": content}], "input_type": "search_document"}],
    ]
    *pictures, mixed = other_apis.run("cohere_embed.py", url=served_fakes, calls=calls)
    seen = {"data": PICTURE, "format": "png"}
    for answer in pictures:
        expected = native(served_fakes, MEDIA, [{"images": [seen]}])
        np.testing.assert_allclose(answer["embeddings"]["float"], expected, atol=1e-5)
    expected = native(served_fakes, MEDIA, [{"text": "a fox", "images": [seen]}], input_type="document")
    np.testing.assert_allclose(mixed["embeddings"]["float"], expected, atol=1e-5)


def test_refusals_are_errors_the_client_can_read(other_apis, served_fakes):
    base = {"model": FAKE, "texts": ["x"], "input_type": "search_query"}
    changes = [{"model": "no/such"}, {"texts": []}, {"output_dimension": 7}, {"input_type": "clustering"}]
    calls = [["2", base | change] for change in changes]
    refused = other_apis.run("cohere_embed.py", url=served_fakes, calls=calls)
    assert [each["raised"] for each in refused] == ["NotFoundError"] + ["BadRequestError"] * 3
    for answer, says in zip(refused, ("no/such", "texts", "8, 16, 32", "input_type"), strict=True):
        assert says in answer["body"]["message"]
