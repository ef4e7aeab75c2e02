"""Paths as clients are known to write them answer as the route that is meant, for all who look at the path."""

from __future__ import annotations

import httpx
import pytest
from pydantic import SecretStr

from sie_core.api import create_app
from sie_core.api.inference.direct import DirectApp
from sie_core.api.paths.canonical import canonical_path
from sie_core.settings import Settings
from tests.api.conftest import TellTaleBackend

EMBED = {"model": "org/model", "input": "four"}
ENCODE = {"items": [{"text": "four"}]}


def calling(app: DirectApp) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app, raise_app_exceptions=False), base_url="http://sie")


async def sent(client: httpx.AsyncClient, method: str, path: str, **more) -> httpx.Response:
    """Send a path as it stands; httpx itself would take `//x` for a host."""
    request = client.build_request(method, "http://sie", **more)
    request.url = httpx.URL("http://sie").copy_with(raw_path=path.encode())
    return await client.send(request)


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/v1/embeddings/", "/v1/embeddings"),
        ("/v1/embeddings///", "/v1/embeddings"),
        ("//v1//embeddings", "/v1/embeddings"),
        ("/v1/v1/embeddings", "/v1/embeddings"),
        ("/v1//v1/embeddings/", "/v1/embeddings"),
        ("/api/v1/embeddings", "/v1/embeddings"),
        ("/openai/v1/embeddings", "/v1/embeddings"),
        ("/v1/v2/rerank", "/v2/rerank"),
        ("/api/v1/encode/v1/v2/name", "/v1/encode/v1/v2/name"),
        ("/openai/deployments/org/name/embeddings", "/tei/org/name/v1/embeddings"),
        ("/", "/"),
        ("//", "/"),
        ("/v1", "/v1"),
        ("/v1/v1", "/v1/v1"),
        ("/api/embed", "/api/embed"),
        ("/v1/encode/api/v1/name", "/v1/encode/api/v1/name"),
    ],
)
def test_a_path_has_one_canonical_form(path: str, meant: str) -> None:
    assert canonical_path(path) == meant
    assert canonical_path(meant) == meant


@pytest.mark.parametrize(
    ("path", "route"),
    [
        ("/v1/embeddings/", "/v1/embeddings"),
        ("//v1/embeddings", "/v1/embeddings"),
        ("/v1//embeddings", "/v1/embeddings"),
        ("/v1/v1/embeddings", "/v1/embeddings"),
        ("/api/v1/embeddings", "/v1/embeddings"),
        ("/openai/v1/embeddings?api-version=preview", "/v1/embeddings"),
        ("/openai/deployments/org/model/embeddings?api-version=2024-10-21", "/tei/{model:path}/v1/embeddings"),
        ("/openai/deployments/org%2Fmodel/embeddings", "/tei/{model:path}/v1/embeddings"),
    ],
)
async def test_a_spelling_answers_and_counts_as_the_route_meant(client, backend, path: str, route: str) -> None:
    reply = await sent(client, "POST", path, json=EMBED)
    assert (reply.status_code, reply.json()["data"][0]["embedding"]) == (200, [4.0] * 4)
    assert backend.requests[0].model == "org/model"
    assert reply.headers["x-sie-served-by"] == "local"
    counted = (await client.get("/metrics")).text
    assert f'sie_http_requests_total{{method="POST",route="{route}",status="200"}} 1.0' in counted


@pytest.mark.parametrize("path", ["/v1/encode/org/model/", "//v1//encode/org/model", "/v1/v1/encode/org%2Fmodel"])
async def test_the_model_of_a_path_stays_what_it_is(client: httpx.AsyncClient, backend, path: str) -> None:
    assert (await sent(client, "POST", path, json=ENCODE)).status_code == 200
    assert backend.requests[0].model == "org/model"


@pytest.mark.parametrize("path", ["/v1/models/", "/v1//models", "/api/v1/models", "/openai/v1/models", "//healthz/"])
async def test_lookups_are_found_too(client: httpx.AsyncClient, path: str) -> None:
    assert (await sent(client, "GET", path)).status_code == 200


PRIVATE = Settings(auth_mode="static", auth_token=SecretStr("secret"), auth_exempt_operational=True)


@pytest.mark.parametrize(
    "path",
    [
        *("/v1/embeddings/", "//v1/embeddings", "/v1/v1/embeddings", "/api/v1/embeddings", "/openai/v1/embeddings"),
        *("/openai/deployments/org/model/embeddings", "/healthz/../v1/embeddings", "/v1/embeddings/healthz/.."),
        *("/v1/v1/models", "//v1/models", "/ws/../v1/models", "/tei/v1/v1/models/x/health", "/v1/models/metrics/"),
    ],
)
async def test_no_spelling_gets_around_the_token(backend, path: str) -> None:
    async with calling(create_app(backend, PRIVATE)) as client:
        for method in ("GET", "POST"):
            reply = await sent(client, method, path, json=EMBED if method == "POST" else None)
            assert reply.status_code in (401, 404, 405)
            assert not backend.requests
        assert (await sent(client, "POST", path, json=EMBED, headers={"Authorization": "secret"})).status_code != 401


@pytest.mark.parametrize("path", ["/metrics/", "//metrics", "/healthz/", "/readyz/", "/health//"])
async def test_what_wants_no_token_wants_none_in_any_spelling(path: str) -> None:
    async with calling(create_app(TellTaleBackend(), PRIVATE)) as client:
        assert (await sent(client, "GET", path)).status_code == 200


@pytest.mark.parametrize("path", ["/openai/v1/embeddings", "/openai/deployments/org/model/embeddings"])
async def test_azure_s_clients_send_the_token_as_their_key(backend, path: str) -> None:
    async with calling(create_app(backend, PRIVATE)) as client:
        assert (await client.post(path, json=EMBED, headers={"api-key": "secret"})).status_code == 200
        assert (await client.post(path, json=EMBED, headers={"api-key": "wrong"})).status_code == 401
        both = {"api-key": "secret", "Authorization": "Bearer wrong"}
        assert (await client.post(path, json=EMBED, headers=both)).status_code == 401
        assert (await client.post("/v1/embeddings", json=EMBED, headers={"api-key": "secret"})).status_code == 401


async def test_a_preflight_of_a_spelling_is_answered_for_the_route(backend) -> None:
    app = create_app(backend, Settings(cors_origins=("https://app.example.com",)))
    asked = {"Origin": "https://app.example.com", "Access-Control-Request-Method": "POST"}
    async with calling(app) as client:
        assert (await sent(client, "OPTIONS", "//v1/embeddings/", headers=asked)).status_code == 204


@pytest.mark.parametrize(
    ("method", "path", "named"),
    [
        ("POST", "/v1/embedding", "POST /v1/embeddings?"),
        ("POST", "/v1/encode", "POST /v1/encode/{model}?"),
        ("POST", "/encode/org/name", "POST /v1/encode/{model}?"),
        ("POST", "/api/v1/embeding", "POST /v1/embeddings?"),
        ("POST", "/v3/rerank", "POST /rerank?"),
        ("GET", "/v1/model", "GET /v1/models?"),
        ("POST", "/tei/", "POST /tei/{model}?"),
        ("GET", "/ready", "GET /readyz?"),
    ],
)
async def test_a_404_names_the_route_meant(client: httpx.AsyncClient, method: str, path: str, named: str) -> None:
    error = (await client.request(method, path)).json()["error"]
    assert error["code"] == "NOT_FOUND"
    assert named in error["message"]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/nothing", "/favicon.ico"])
async def test_a_path_like_no_route_is_shown_none(client: httpx.AsyncClient, path: str) -> None:
    message = (await client.post(path)).json()["error"]["message"]
    assert "Did you mean" not in message
    assert "GET /docs lists the routes" in message


async def test_a_spelling_with_the_wrong_method_is_a_405(client: httpx.AsyncClient) -> None:
    reply = await sent(client, "GET", "//v1/embeddings/")
    assert (reply.status_code, reply.headers["allow"]) == (405, "POST")
    assert "It takes POST." in reply.json()["error"]["message"]


async def test_azure_s_deployment_is_the_model_whatever_the_body_names(client: httpx.AsyncClient, backend) -> None:
    body = {"model": "text-embedding-ada-002", "input": "four"}  # which some clients write by themselves
    reply = await client.post("/openai/deployments/org/name/embeddings?api-version=2024-10-21", json=body)
    assert (reply.status_code, backend.requests[0].model) == (200, "org/name")
