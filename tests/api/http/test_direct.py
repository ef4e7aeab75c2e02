import httpx
import pytest

from sie_core.api.inference.direct import DirectApp
from sie_core.api.routes import DOCUMENTED

URL = "/v1/encode/org/model"
BODY = {"items": [{"text": "abc"}]}


@pytest.fixture
def bypassed(app: DirectApp, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Name the paths that Starlette's router handles."""
    paths: list[str] = []
    handle = app.router.__call__

    async def note(scope, receive, send):
        paths.append(scope["path"])
        await handle(scope, receive, send)

    monkeypatch.setattr(app, "router", note)
    return paths


async def test_inference_passes_fastapi_by_and_everything_else_does_not(client: httpx.AsyncClient, bypassed) -> None:
    assert (await client.post(URL, json=BODY)).status_code == 200
    assert (await client.post("/v1/embeddings", json={"model": "org/model", "input": "x"})).status_code == 200
    assert bypassed == []
    assert (await client.get("/v1/models")).status_code == 200
    assert bypassed == ["/v1/models"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", URL, 405), ("DELETE", "/v1/embeddings", 405), ("POST", "/v1/embeddings/x", 404), ("POST", "/v1/x", 404)],
)
async def test_other_methods_and_paths_beside_the_inference_routes_are_refused(
    client: httpx.AsyncClient, method, path, status
) -> None:
    reply = await client.request(method, path, json=BODY)
    assert reply.status_code == status
    assert "detail" not in reply.json()
    assert path in reply.json()["error"]["message"]


async def test_requests_are_counted_under_the_template_of_their_route(client: httpx.AsyncClient) -> None:
    await client.post(URL, json=BODY)
    assert (
        'sie_http_requests_total{method="POST",route="/v1/encode/{model:path}",status="200"} 1.0'
        in (await client.get("/metrics")).text
    )


async def test_a_crash_in_an_endpoint_is_an_internal_error_in_our_envelope(client: httpx.AsyncClient, backend) -> None:
    async def crash(_) -> None:
        raise RuntimeError("secret")

    backend.act = crash
    reply = await client.post(URL, json=BODY)
    assert reply.status_code == 500
    assert reply.json()["error"]["code"] == "INTERNAL_ERROR"
    assert "secret" not in reply.text


def test_every_route_of_inference_is_there_once() -> None:
    paths = [row.path for row in DOCUMENTED if row.infers]
    assert len(paths) == len(set(paths)) > 30
