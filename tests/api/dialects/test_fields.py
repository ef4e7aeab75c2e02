"""Every field of every other API is served, ignored for a reason, or refused, on every route that takes a model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from pydantic import BaseModel

from sie_core.api.fields.body import DialectBody
from sie_core.api.fields.table import UNSERVED
from sie_core.api.inference.route import Operation, Route
from sie_core.api.openapi.examples import MODEL
from sie_core.api.routes import INFERENCE
from sie_core.api.tei.rerank import RANK_DOCUMENTS, RANK_TEXTS

CONTENT = {
    *("model", "input", "inputs", "texts", "images", "documents", "passages", "query", "queries", "prompt"),
    *("text_1", "text_2", "ids", "options"),
}
"""What is asked about: a body without its own is refused in any case. `options` are of a family, or of Ollama."""
CHOSEN = {"rerank": (RANK_DOCUMENTS, RANK_TEXTS)}
"""The operations of routes that choose by the body."""
PROBE = "a value that asks for something else"


def dialects() -> Iterator[tuple[str, type[DialectBody], dict[str, Any]]]:
    """Go through a path, a schema and an example of its body, for each route of another API."""
    for route in INFERENCE:
        for operation in _operations(route):
            if issubclass(operation.body, DialectBody):
                example = next((each for each in route.examples if _fits(operation.body, each.body)), None)
                body = dict(example.body) if example else {"query": "a", "documents": ["b"], "model": MODEL}
                yield route.paths[0], operation.body, body


def _operations(route: Route) -> tuple[Operation[Any], ...]:
    return (route.operation,) if isinstance(route.operation, Operation) else CHOSEN.get(route.name, ())


def _fits(schema: type[BaseModel], body: Any) -> bool:
    return schema.model_fields.keys() >= body.keys()


DIALECTS = {f"{path} {schema.__name__}": (path, schema, body) for path, schema, body in dialects()}
DECLARED = {name for _, schema, _ in DIALECTS.values() for name in schema.model_fields}


def test_every_other_api_is_looked_at() -> None:
    assert len(DIALECTS) == 20
    assert all("model" in schema.model_fields for _, schema, _ in DIALECTS.values())


def test_every_field_of_one_api_is_served_or_in_the_table_for_the_others() -> None:
    missing = {
        name: here
        for here, (_, schema, _) in DIALECTS.items()
        for name in DECLARED - schema.model_fields.keys() - UNSERVED.keys() - CONTENT
    }
    assert missing == {}


def test_the_table_holds_no_field_that_every_route_serves() -> None:
    assert [name for name in UNSERVED if all(name in schema.model_fields for _, schema, _ in DIALECTS.values())] == []


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_what_is_not_served_is_refused_or_changes_nothing(client: httpx.AsyncClient, dialect: str) -> None:
    path, schema, body = DIALECTS[dialect]
    for name, row in UNSERVED.items():
        if name in schema.model_fields:
            continue
        reply = await client.post(path, json=body | {name: PROBE})
        if row.refused:
            told = reply.json()
            message = told.get("message") or told.get("error")
            error = told["error"] if isinstance(told.get("error"), dict) else {"message": message}
            assert 400 <= reply.status_code < 500, (name, reply.text)
            assert f"`{name}`" in error["message"], name
            assert row.why in error["message"], name
        for value in (None, *row.harmless) if row.refused else (PROBE,):
            assert_not_refused(await client.post(path, json=body | {name: value}), name)


def assert_not_refused(reply: httpx.Response, name: str) -> None:
    assert f"`{name}`" not in reply.text, reply.text
    assert name not in reply.headers.get("x-sie-ignored-options", ""), name


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_misspelt_field_is_refused_with_the_one_meant(client: httpx.AsyncClient, dialect: str) -> None:
    path, schema, body = DIALECTS[dialect]
    name = max(schema.model_fields.keys() - CONTENT, key=len)
    reply = await client.post(path, json=body | {f"{name}s": PROBE})
    assert 400 <= reply.status_code < 500
    assert f"did you mean `{name}`?" in reply.text


async def test_a_field_that_nobody_knows_is_ignored_and_told(client: httpx.AsyncClient) -> None:
    body = {"model": MODEL, "input": "four", "made_up": 1, "für,dich\n": {"a": 1}, "none": None}
    reply = await client.post("/v1/embeddings", json=body)
    assert reply.status_code == 200
    assert reply.headers["x-sie-ignored-options"] == "made_up, f\\xfcr?dich?"
    many = {"model": MODEL, "input": "four"} | {f"unknown_{number}" * 9: number for number in range(50)}
    reply = await client.post("/v1/embeddings", json=many)
    assert reply.status_code == 200, reply.text
    told = reply.headers["x-sie-ignored-options"]
    assert len(told) < 8 * 66


async def test_a_model_of_the_body_is_obeyed_on_every_route(client: httpx.AsyncClient, backend: Any) -> None:
    for here, (path, schema, body) in DIALECTS.items():
        backend.requests.clear()
        reply = await client.post(path, json=body | {"model": "org/named"})
        asked = [request.model for request in backend.requests]
        assert asked in (["org/named"], []), here
        if not asked:  # this backend knows neither tokenizers nor classes
            assert path in ("/tokenize", "/decode"), (here, reply.text)
        if schema.__module__.startswith("sie_core.api.tei"):
            below = await client.post(f"/tei/org/other{path}", json=body | {"model": "org/named"})
            assert "`model` is 'org/named' and the path says 'org/other'" in below.text, here
