from dataclasses import replace

import httpx
import pytest

from sie_core.api.ops import models
from sie_core.contracts import ModelInfo
from tests.api.conftest import TellTaleBackend


async def test_one_list_serves_both_kinds_of_client(client: httpx.AsyncClient) -> None:
    body = (await client.get("/v1/models")).json()
    assert body["object"] == "list"
    (openai,) = body["data"]
    assert openai["id"] == "org/model"
    assert (openai["object"], openai["owned_by"]) == ("model", "org")
    assert isinstance(openai["created"], int)
    (native,) = body["models"]
    assert native["name"] == "org/model"
    assert (native["inputs"], native["outputs"], native["dims"]) == (["text"], ["dense"], {"dense": 4})
    assert (native["loaded"], native["state"], native["last_error"]) == (True, "loaded", None)
    assert native["profiles"]["default"]["is_default"] is True


async def test_one_model_has_the_fields_of_both_lists(client: httpx.AsyncClient) -> None:
    body = (await client.get("/v1/models")).json()
    one = (await client.get("/v1/models/org/model")).json()
    assert one == body["data"][0] | body["models"][0]


async def test_a_get_answers_json_whatever_the_session_sends(client: httpx.AsyncClient) -> None:
    headers = {"Content-Type": "application/msgpack", "Accept": "application/msgpack"}
    reply = await client.get("/v1/models", headers=headers)
    assert reply.headers["content-type"] == "application/json"


async def test_an_unknown_model_is_404_with_the_nearest_names(client: httpx.AsyncClient) -> None:
    reply = await client.get("/v1/models/org/modle")
    assert (reply.status_code, reply.json()["error"]["code"]) == (404, "MODEL_NOT_FOUND")
    assert "org/model" in reply.json()["error"]["message"]


async def test_plugins_are_listed_with_what_they_register(client: httpx.AsyncClient) -> None:
    (plugin,) = (await client.get("/v1/plugins")).json()["plugins"]
    assert plugin == {"name": "fake", "state": "active", "registers": {"sie_model_families": ["fake"]}}


HERE, ELSEWHERE = (
    ModelInfo("org/here", ("text",), ("dense", "sparse"), dims={"dense": 4}, state="available", available=True),
    ModelInfo("org/elsewhere", ("text",), (), dims={}, state="available"),
)


@pytest.mark.parametrize(
    ("asked", "listed"),
    [
        ("", ["org/here", "org/elsewhere"]),
        ("?available=true", ["org/here"]),
        ("?available=False", ["org/elsewhere"]),
    ],
)
async def test_models_whose_weights_are_here_are_marked_and_can_be_listed_alone(
    client: httpx.AsyncClient, backend: TellTaleBackend, monkeypatch: pytest.MonkeyPatch, asked: str, listed: list[str]
) -> None:
    monkeypatch.setattr(backend, "models", lambda: [HERE, ELSEWHERE])
    body = (await client.get(f"/v1/models{asked}")).json()
    assert [model["id"] for model in body["data"]] == listed
    assert {model["name"]: model["available"] for model in body["models"]} == {
        name: name == "org/here" for name in listed
    }


async def test_a_size_that_nobody_knows_is_left_out(
    client: httpx.AsyncClient, backend: TellTaleBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "models", lambda: [HERE, ELSEWHERE])
    listed = (await client.get("/v1/models")).json()["models"]
    assert [model["dims"] for model in listed] == [{"dense": 4}, {}]


async def test_a_long_listing_is_sent_in_parts_and_says_the_same(
    client: httpx.AsyncClient, backend: TellTaleBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "models", lambda: [replace(HERE, id=f"org/{number}") for number in range(5)])
    plain = {"Accept-Encoding": "identity"}
    whole = await client.get("/v1/models", headers=plain)
    monkeypatch.setattr(models, "PART", 2)
    parts = await client.get("/v1/models", headers=plain)
    assert parts.json() == whole.json()
    assert [reply.headers.get("content-length") for reply in (whole, parts)] == [str(len(whole.content)), None]
    assert parts.headers["content-type"] == "application/json"


async def test_another_word_for_available_is_refused_by_name(client: httpx.AsyncClient) -> None:
    reply = await client.get("/v1/models?available=maybe")
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "available")
    assert "'maybe'; allowed are true and false" in reply.json()["error"]["message"]


async def test_what_is_not_known_of_a_model_is_left_out(
    client: httpx.AsyncClient, backend: TellTaleBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    unknown = {"max_sequence_length", "revision", "adapter", "memory_bytes", "last_used_at"}
    model = replace(HERE, max_sequence_length=512, revision="abc", adapter="a:b", memory_bytes=1, last_used_at=2.0)
    for told, left_out in ((ELSEWHERE, unknown), (model, set())):
        monkeypatch.setattr(backend, "models", lambda told=told: [told])
        (body,) = (await client.get("/v1/models")).json()["models"]
        assert unknown - body.keys() == left_out
        assert {name for name, value in body.items() if value is None} == {"last_error", "capabilities"}
