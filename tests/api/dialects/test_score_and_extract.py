"""`/v1/score` and `/v1/extract` over the real engine and the fakes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import pytest_asyncio
from sie_sdk import wire

from sie_core.api import create_app
from sie_core.api.http.limits import MAX_DOCUMENTS, MAX_LABEL_CHARS, MAX_LABELS, MAX_SCHEMA_DEPTH, MAX_SCHEMA_VALUES
from sie_core.defaults import BUILTINS
from sie_core.engine import build_engine
from sie_core.plugins import discover
from sie_core.settings import Settings
from tests.api.ops.test_openapi import check

pytestmark = pytest.mark.asyncio(loop_scope="module")

MODELS = ("sie-fake/embedder", "sie-fake/reranker", "sie-fake/extractor", "sie-fake/media")
MSGPACK = {"Content-Type": "application/msgpack"}
SCORE, EXTRACT = "/v1/score/sie-fake/reranker", "/v1/extract/sie-fake/extractor"
QUERY = {"text": "red fox"}
DOCUMENTS = [{"text": "a house"}, {"text": "a red fox", "id": "fox"}, {"text": "red, no fox"}, {"text": "a red hat"}]
TEXT = "👩‍🔬 person=Ada of place=London: Ada-knows->Grace"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[httpx.AsyncClient]:
    settings = Settings(models_dir=tmp_path_factory.mktemp("models"), preload_models=MODELS, hf_fallback=False)
    plugins = discover(settings, BUILTINS)
    engine = build_engine(settings, plugins)
    app = create_app(engine, settings, registry=engine.metrics.registry)
    await engine.start()
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://sie", timeout=30) as client:
        yield client
    await engine.close()


async def refused(client: httpx.AsyncClient, url: str, body: dict[str, Any]) -> tuple[str | None, str]:
    reply = await client.post(url, json=body)
    assert reply.status_code == 400, reply.text
    error = reply.json()["error"]
    assert error["code"] in ("INVALID_INPUT", "INPUT_TOO_LONG")
    return error.get("param"), error["message"]


async def test_documents_come_ranked_and_equal_ones_in_the_order_sent(client: httpx.AsyncClient) -> None:
    reply = await client.post(SCORE, json={"query": QUERY | {"id": "q"}, "items": DOCUMENTS})
    body = reply.json()
    assert body["scores"] == [
        {"item_id": "fox", "score": 1.0, "rank": 0},
        {"item_id": "item-2", "score": 0.5, "rank": 1},
        {"item_id": "item-3", "score": 0.5, "rank": 2},
        {"item_id": "item-0", "score": 0.0, "rank": 3},
    ]
    assert (body["model"], body["query_id"]) == ("sie-fake/reranker", "q")
    assert body["usage"] == {"input_tokens": 4 * 2 + 11}
    assert body["timing"]["total_ms"] > 0
    assert float(reply.headers["X-Total-Time"]) > 0
    assert reply.headers["X-SIE-Served-By"] == "local"


async def test_a_score_is_the_same_in_msgpack(client: httpx.AsyncClient) -> None:
    body = {"query": QUERY, "items": DOCUMENTS}
    packed = await client.post(SCORE, content=wire.pack(body), headers=MSGPACK)
    assert packed.headers["content-type"] == "application/msgpack"
    theirs, ours = wire.unpack(packed.content), (await client.post(SCORE, json=body)).json()
    assert theirs["scores"] == ours["scores"]
    assert theirs.keys() == ours.keys()


async def test_an_encoder_scores_too(client: httpx.AsyncClient) -> None:
    body = {"query": QUERY, "items": DOCUMENTS, "options": {"output_types": ["sparse"]}}
    scores = (await client.post("/v1/score/sie-fake/embedder", json=body)).json()["scores"]
    assert scores[0]["item_id"] == "fox"
    assert scores[0]["score"] > scores[1]["score"]


async def test_cut_pairs_say_so(client: httpx.AsyncClient) -> None:
    reply = await client.post(SCORE, json={"query": QUERY, "items": [{"text": "w " * 90}, {"text": "red"}]})
    assert reply.json()["scores"][1]["truncated"] == {"tokens": 92, "kept": 64}
    assert "truncated" not in reply.json()["scores"][0]
    assert reply.headers["X-SIE-Truncated"] == "1"
    param, _ = await refused(client, SCORE, {"query": QUERY, "items": [{"text": "w " * 90}], "truncate": "error"})
    assert param == "items[0].text"


async def test_extraction_comes_in_the_order_sent_with_every_kind_of_output(client: httpx.AsyncClient) -> None:
    items = [{"text": TEXT}, {"text": "nothing", "id": "b"}]
    reply = await client.post(EXTRACT, json={"items": items, "params": {"labels": ["person", "place", "person"]}})
    body = reply.json()
    first, second = body["items"]
    assert [(entity["label"], entity["text"]) for entity in first["entities"]] == [
        ("person", "Ada"),
        ("place", "London:"),
    ]
    for entity in first["entities"]:
        assert TEXT[entity["start"] : entity["end"]] == entity["text"]
        assert entity["bbox"] is None
    assert first["relations"][0]["relation"] == "knows"
    assert second == {"id": "b", "entities": [], "relations": [], "classifications": [], "objects": [], "data": {}}
    assert first["id"] == "item-0"
    assert body["usage"] == {"input_tokens": 6}
    assert body["timing"]["total_ms"] > 0


async def test_an_extraction_is_the_same_in_msgpack(client: httpx.AsyncClient) -> None:
    body = {
        "items": [{"text": TEXT}],
        "params": {"labels": ["person"], "output_schema": {"properties": {"person": {}}}},
    }
    packed = wire.unpack((await client.post(EXTRACT, content=wire.pack(body), headers=MSGPACK)).content)
    assert packed["items"] == (await client.post(EXTRACT, json=body)).json()["items"]
    assert packed["items"][0]["data"] == {"person": ["Ada"]}


async def test_images_are_counted_in_the_usage(client: httpx.AsyncClient) -> None:
    items = [{"images": [{"data": "cGl4ZWxz", "format": "png"}] * 2}]
    body = (await client.post("/v1/extract/sie-fake/media", json={"items": items})).json()
    assert [each["label"] for each in body["items"][0]["objects"]] == ["png", "png"]
    assert body["usage"] == {"input_tokens": 0, "images": 2}


@pytest.mark.parametrize(
    ("url", "body", "param", "told"),
    [
        ("/v1/score/sie-fake/extractor", {"query": QUERY, "items": DOCUMENTS}, "model", "serves extract, not score"),
        ("/v1/encode/sie-fake/reranker", {"items": DOCUMENTS}, "model", "serves score, not encode"),
        (SCORE, {"items": DOCUMENTS}, "query", "required"),
        (SCORE, {"query": "red", "items": DOCUMENTS}, "query", "bare string"),
        (SCORE, {"query": QUERY, "items": ["red"]}, "items", "bare string"),
        (SCORE, {"query": QUERY, "items": []}, "items", "at least 1"),
        (SCORE, {"query": {"text": "  "}, "items": DOCUMENTS}, "query.text", "blank"),
        (SCORE, {"query": QUERY, "items": [{"text": "x"}] * (MAX_DOCUMENTS + 1)}, "items", "1000"),
        (SCORE, {"query": QUERY, "items": DOCUMENTS, "options": {"tresh": 1}}, "options.tresh", "Known"),
        (SCORE, {"query": QUERY, "items": DOCUMENTS, "options": {"instruction": 1}}, "options.instruction", "a text"),
        (SCORE, {"query": {"images": [{"data": "AAAA"}]}, "items": DOCUMENTS}, "query.images", "takes text, no image"),
        (SCORE, {"query": QUERY, "items": DOCUMENTS, "truncate": "start", "options": {"overflow_policy": "error"}},
         "truncate", "give one of them"),
        (EXTRACT, {"items": DOCUMENTS}, "params.labels", "params.labels is missing"),
        (EXTRACT, {"items": DOCUMENTS, "params": {"labels": ["x", ""]}}, "params.labels[1]", "blank"),
        (EXTRACT, {"items": DOCUMENTS, "params": {"labels": "x"}}, "params.labels", "list"),
        (EXTRACT, {"items": DOCUMENTS, "params": {"labels": ["x"] * (MAX_LABELS + 1)}}, "params.labels", "1000"),
        (EXTRACT, {"items": DOCUMENTS, "params": {"labels": ["x", "x" + " " * MAX_LABEL_CHARS]}},
         "params.labels[1]", "at most 1000"),
        (EXTRACT, {"items": DOCUMENTS, "params": {"labels": ["x"], "options": {"treshold": 1}}},
         "params.options.treshold", "Did you mean threshold"),
        (EXTRACT, {"items": [{"audio": {"data": "AAAA"}}], "params": {"labels": ["x"]}}, "items[0].audio", "no audio"),
        ("/v1/encode/sie-fake/embedder", {"items": [{"text": "x", "images": [{"data": "AAAA"}]}]},
         "items[0].images", "takes text, no image"),
        ("/v1/encode/sie-fake/media", {"items": DOCUMENTS, "params": {"output_types": ["sparse"]}},
         "params.output_types", "gives dense, not sparse"),
        ("/v1/encode/sie-fake/media", {"items": [{"images": [{"data": "Y29ycnVwdA=="}]}]},
         "items[0].images[0]", "cannot be decoded"),
    ],
)  # fmt: skip
async def test_wrong_use_is_told_what_is_wrong_and_what_is_allowed(client, url, body, param, told) -> None:
    named, message = await refused(client, url, body)
    assert named == param
    assert told in message


@pytest.mark.parametrize(
    ("url", "body", "ignored"),
    [
        # Of another operation of the engine, of one of the family, and of another family.
        (SCORE, {"query": QUERY, "items": DOCUMENTS, "options": {"is_query": True, "threshold": 1}},
         "is_query, threshold"),
        (EXTRACT, {"items": DOCUMENTS, "params": {"labels": ["x"], "options": {"scale": 2.0}}}, "scale"),
        ("/v1/encode/sie-fake/embedder", {"items": DOCUMENTS, "params": {"options": {"activation": "made up"}}},
         "activation"),
        (SCORE, {"query": QUERY, "items": DOCUMENTS, "options": {"lowercase": True}}, None),
    ],
)  # fmt: skip
async def test_options_that_another_operation_or_family_reads_are_ignored_and_the_reply_says_so(
    client, url, body, ignored
) -> None:
    reply = await client.post(url, json=body)
    assert reply.status_code == 200, reply.text
    assert reply.headers.get("X-SIE-Ignored-Options") == ignored
    plain = {name: value for name, value in body.items() if name != "options"}
    if "params" in body:
        plain["params"] = {"labels": body["params"].get("labels")}
    without = await client.post(url, json=plain)
    for answer in (told := reply.json(), expected := without.json()):
        del answer["timing"]
    assert told == expected


async def test_a_schema_may_neither_nest_nor_hold_too_much(client: httpx.AsyncClient) -> None:
    deep: dict[str, Any] = {}
    for _ in range(MAX_SCHEMA_DEPTH):
        deep = {"a": deep}
    for schema, told in ((deep, "levels"), ({"a": [0] * MAX_SCHEMA_VALUES}, "values")):
        body = {"items": [{"text": TEXT}], "params": {"labels": ["x"], "output_schema": schema}}
        param, message = await refused(client, EXTRACT, body)
        assert param == "params.output_schema"
        assert told in message
    fits = {"items": [{"text": TEXT}], "params": {"labels": ["x"], "output_schema": deep["a"]}}
    assert (await client.post(EXTRACT, json=fits)).status_code == 200


async def test_models_say_what_they_answer_and_give(client: httpx.AsyncClient) -> None:
    models = {model["name"]: model for model in (await client.get("/v1/models")).json()["models"]}
    told = {name: (models[name]["operations"], models[name]["outputs"]) for name in MODELS}
    assert told == {
        "sie-fake/embedder": (["encode", "score"], ["dense", "sparse", "multivector"]),
        "sie-fake/reranker": (["score"], ["score"]),
        "sie-fake/extractor": (["extract"], ["json"]),
        "sie-fake/media": (["encode", "score", "extract"], ["dense", "json"]),
    }
    assert models["sie-fake/media"]["inputs"] == ["text", "image", "audio"]
    unloaded = models["sie-fake/extractor:windowed"]
    assert (unloaded["operations"], unloaded["outputs"], unloaded["state"]) == (["extract"], ["json"], "available")


@pytest.mark.parametrize(
    ("path", "url", "body"),
    [
        ("/v1/score/{model}", SCORE, {"query": QUERY, "items": [*DOCUMENTS, {"text": "w " * 90}]}),
        ("/v1/score/{model}", SCORE, {"items": []}),
        ("/v1/extract/{model}", EXTRACT, {"items": [{"text": TEXT}], "params": {"labels": ["person", "place"]}}),
        ("/v1/extract/{model}", "/v1/extract/sie-fake/media", {"items": [{"images": [{"data": "AAAA"}]}]}),
        ("/v1/extract/{model}", EXTRACT, {"items": [{"text": TEXT}]}),
    ],
)
async def test_replies_are_as_the_document_describes_them(client: httpx.AsyncClient, path, url, body) -> None:
    document = (await client.get("/openapi.json")).json()
    check(document, path, "post", await client.post(url, json=body))


async def test_requests_are_counted_by_their_operation(client: httpx.AsyncClient) -> None:
    await client.post(SCORE, json={"query": QUERY, "items": DOCUMENTS})
    text = (await client.get("/metrics")).text
    assert 'sie_requests_total{model="sie-fake/reranker",operation="score",outcome="ok"}' in text


@pytest.mark.parametrize(
    ("url", "body", "field"),
    [
        ("/v1/encode/sie-fake/embedder", {"items": DOCUMENTS, "options": {"lora": "a"}}, "`options`"),
        ("/v1/encode/sie-fake/embedder", {"items": DOCUMENTS, "output_types": ["sparse"]}, "`output_types`"),
        (EXTRACT, {"items": DOCUMENTS, "labels": ["person"]}, "`labels`"),
        (SCORE, {"query": QUERY, "items": DOCUMENTS, "params": {"options": {}}}, "`params`"),
    ],
)
async def test_a_field_at_another_operation_s_level_is_refused_not_ignored(
    client: httpx.AsyncClient, url: str, body: dict[str, Any], field: str
) -> None:
    _, message = await refused(client, url, body)
    assert message.startswith(f"The body holds {field}")


async def test_fields_nobody_knows_are_ignored(client: httpx.AsyncClient) -> None:
    reply = await client.post("/v1/encode/sie-fake/embedder", json={"items": DOCUMENTS, "trace": {"a": 1}})
    assert reply.status_code == 200
