"""The OpenAPI document is valid, complete, and what the server does."""

import json
import re
from typing import Any

import httpx
import jsonschema_rs
import pytest
from sie_sdk.errors import ERRORS

from sie_core.api.http.model_id import check_model_id
from sie_core.api.inference.direct import DirectApp
from sie_core.api.openapi.purposes import PURPOSES
from sie_core.api.pages.listing import examples, operations
from sie_core.contracts import InvalidInput


@pytest.fixture
def document(app: DirectApp) -> dict[str, Any]:
    return app.openapi()


def check(document: dict[str, Any], path: str, method: str, reply: httpx.Response) -> None:
    """Hold a reply against what the document says of it."""
    responses = document["paths"][path][method]["responses"]
    described = responses.get(str(reply.status_code), responses["default"])
    schema = described["content"][reply.headers["content-type"]]["schema"]
    resolved = {"$ref": schema["$ref"], "components": document["components"]}
    jsonschema_rs.validator_for(resolved).validate(reply.json())


def test_every_reference_resolves_and_every_schema_is_one(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    names = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(document)))
    assert names <= schemas.keys()
    assert {"EncodeBody", "EncodeReply", "EmbeddingsBody", "ErrorReply", "OpenAIErrorReply"} <= names
    for schema in schemas.values():
        jsonschema_rs.Draft202012Validator(schema | {"components": document["components"]})


def test_every_route_is_described_and_promises_no_validation_error_of_another_shape(document, app: DirectApp) -> None:
    assert set(document["paths"]) == {
        "/v1/encode/{model}", "/v1/score/{model}", "/v1/extract/{model}", "/v1/embeddings",
        "/v1/embed", "/v2/embed", "/v1/rerank", "/v2/rerank", "/v1/ranking",
        "/score", "/v1/score", "/classify", "/v1/classify",
        "/api/embed", "/api/embeddings", "/api/tags", "/api/version",
        "/", "/tei/{model}", "/embeddings", "/tei/{model}/embeddings", "/tei/{model}/v1/embeddings", "/ping",
        *(
            below + route for below in ("", "/tei/{model}") for route in (
                "/embed", "/embed_all", "/embed_sparse", "/similarity", "/rerank", "/predict", "/info", "/health",
                "/tokenize", "/decode",
            )
        ),
        "/v1/models", "/v1/models/{model}", "/v1/plugins",
        "/healthz", "/livez", "/readyz", "/metrics",
    }  # fmt: skip
    for methods in document["paths"].values():
        for operation in methods.values():
            assert operation["description"]
            assert "HTTPValidationError" not in json.dumps(operation)
            assert "default" in operation["responses"]


def test_encode_takes_and_gives_both_formats(document: dict[str, Any]) -> None:
    operation = document["paths"]["/v1/encode/{model}"]["post"]
    formats = {"application/json", "application/msgpack"}
    assert operation["requestBody"]["content"].keys() == formats
    assert operation["responses"]["200"]["content"].keys() == formats
    assert operation["requestBody"]["required"]


def test_every_code_an_inference_can_answer_is_named_at_its_status(document: dict[str, Any]) -> None:
    responses = document["paths"]["/v1/encode/{model}"]["post"]["responses"]
    for row in ERRORS.values():
        if str(row.status) in responses:
            assert row.code in responses[str(row.status)]["description"]


@pytest.mark.parametrize(
    ("path", "url", "body"),
    [
        ("/v1/encode/{model}", "/v1/encode/org/model", {"items": [{"text": "x", "id": "1"}, {"text": "y"}]}),
        ("/v1/encode/{model}", "/v1/encode/org/model", {"items": []}),
        ("/v1/embeddings", "/v1/embeddings", {"model": "org/model", "input": ["x"]}),
        ("/v1/embeddings", "/v1/embeddings", {"model": "org/model", "input": "x", "encoding_format": "base64"}),
        ("/v1/embeddings", "/v1/embeddings", {"model": "org/model", "input": []}),
    ],
)
async def test_replies_to_a_post_are_as_described(client: httpx.AsyncClient, document, path, url, body) -> None:
    check(document, path, "post", await client.post(url, json=body))


@pytest.mark.parametrize(
    ("path", "url"),
    [
        ("/v1/models", "/v1/models"),
        ("/v1/models/{model}", "/v1/models/org/model"),
        ("/v1/models/{model}", "/v1/models/no/model"),
        ("/v1/plugins", "/v1/plugins"),
        ("/health", "/health"),
        ("/", "/"),
    ],
)
async def test_replies_to_a_get_are_as_described(client: httpx.AsyncClient, document, path, url) -> None:
    check(document, path, "get", await client.get(url))


def test_the_root_is_described_for_browsers_too(document) -> None:
    assert set(document["paths"]["/"]) == {"get", "post"}
    assert set(document["paths"]["/"]["get"]["responses"]["200"]["content"]) == {"application/json", "text/html"}


def test_every_route_has_a_purpose_and_every_one_of_inference_an_example(document: dict[str, Any]) -> None:
    """A new route names a tag of `openapi/purposes.py`, and an example that `tests/api/pages` sends."""
    for path, method, operation in operations(document):
        assert len(operation["tags"]) == 1, path
        assert operation["tags"][0] in PURPOSES, path
        if method == "post":
            assert examples(operation), path
    assert [tag["name"] for tag in document["tags"]] == list(PURPOSES)


def test_examples_are_of_the_schema_of_their_body(document: dict[str, Any]) -> None:
    for path, _, operation in operations(document):
        for example in examples(operation).values():
            schema = operation["requestBody"]["content"]["application/json"]["schema"]
            validator = jsonschema_rs.validator_for(schema | {"components": document["components"]})
            assert validator.is_valid(example["value"]), (path, example)


@pytest.mark.parametrize(
    ("model", "allowed"),
    [
        ("org/name:profile", True), ("name", True), ("a" * 256, True),
        ("", False), ("a" * 257, False), ("/a", False), ("a..b", False), ("a\\b", False), ("a\nb", False),
    ],
)  # fmt: skip
def test_ids_of_models_are_described_as_they_are_checked(document, model: str, allowed: bool) -> None:
    paths = [
        parameter["schema"]
        for path in document["paths"].values()
        for operation in path.values()
        for parameter in operation.get("parameters", ())
        if parameter["name"] == "model"
    ]
    bodies = [
        schema["properties"]["model"]
        for name, schema in document["components"]["schemas"].items()
        if name.endswith("Body") and "model" in schema.get("properties", {})
    ]
    assert len(paths) > 15
    assert len(bodies) >= 4
    for schema in paths + bodies:
        assert jsonschema_rs.validator_for(schema).is_valid(model) is allowed
    if allowed:
        assert check_model_id(model) == model
    else:
        with pytest.raises(InvalidInput):
            check_model_id(model)
