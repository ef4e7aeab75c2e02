"""Errors are told about fields under the names that clients of a route have for them."""

from __future__ import annotations

import httpx
import pytest
import pytest_asyncio

from sie_core.contracts import InferenceError
from sie_core.settings import Settings
from tests.api.serving import OVER, serving


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=OVER)
async def client(request: pytest.FixtureRequest):
    async with serving(Settings(hf_fallback=False, preload_models=["sie-fake/embedder"]), request.param) as client:
        yield client


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("text is blank; the text 'context' and text.txt are not meant.", "input is blank; the text 'context' and"),
        ("`text`: is no text.", "`input`: is no text."),
        ("text-small takes no text.", "text-small takes no text."),
        ("text/small takes no text.", "text/small takes no text."),
        ("texts are missing.", "texts are missing."),
    ],
)
def test_only_the_field_a_message_begins_with_gets_its_other_name(message, told):
    error = InferenceError("QUEUE_FULL", message, param="text", retry_after_s=3, details={"a": 1}).about("input")
    assert error.message.startswith(told)
    assert (error.code, error.param, error.retry_after_s, error.details) == ("QUEUE_FULL", "input", 3, {"a": 1})


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/encode/sie-fake/embedder", {"items": [{"text": "a"}], "params": {"dimensions": 5}}, "params.dimensions"),
        (
            "/v1/encode/sie-fake/embedder",
            {"items": [{"text": "a"}], "params": {"options": {"dimensions": 5}}},
            "params.options.dimensions",
        ),
        (
            "/v1/encode/sie-fake/embedder",
            {"items": [{"text": "a"}], "params": {"options": {"output_dtype": "int3"}}},
            "params.options.output_dtype",
        ),
        ("/v1/score/sie-fake/embedder", {"query": {"text": "a"}, "items": [{"text": "a"}],
         "options": {"dimensions": 5, "output_types": ["dense"]}}, "options.dimensions"),
        ("/v1/embeddings", {"model": "sie-fake/embedder", "input": "a", "dimensions": 5}, "dimensions"),
    ],
)  # fmt: skip
@pytest.mark.asyncio(loop_scope="module")
async def test_a_size_is_refused_where_the_client_wrote_it(client: httpx.AsyncClient, path, body, param):
    reply = await client.post(path, json=body)
    error = reply.json()["error"]
    assert (reply.status_code, error["param"]) == (400, param)
    assert error["message"].startswith(f"{param} is ")


@pytest.mark.asyncio(loop_scope="module")
async def test_lora_is_not_offered_where_the_model_takes_none(client: httpx.AsyncClient):
    body = {"items": [{"text": "a"}], "params": {"options": {"lorra": "x"}}}
    message = (await client.post("/v1/encode/sie-fake/embedder", json=body)).json()["error"]["message"]
    assert "overflow_policy" in message
    assert "lora," not in message
