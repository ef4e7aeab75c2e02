"""Every route and both kinds of connection ask for a token, before anything of a request is read."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
from pydantic import SecretStr
from starlette.testclient import TestClient, WebSocketDenialResponse

from sie_core.api import SOCKETS, create_app
from sie_core.api.inference.direct import DirectApp
from sie_core.settings import Settings
from tests.api.conftest import TellTaleBackend

TOKENS = {"auth_mode": "token", "auth_token": SecretStr("right")}
OPEN = {"/healthz", "/livez", "/readyz", "/ping"}
WRONG = (None, "", "Bearer", "Bearer wrong", "Basic cmlnaHQ6", "Bearer right2")


@pytest.fixture
def guarded(backend: TellTaleBackend) -> DirectApp:
    return create_app(backend, Settings(**TOKENS))


@pytest.fixture
async def client(guarded: DirectApp) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(guarded)
    async with httpx.AsyncClient(transport=transport, base_url="http://sie", timeout=10) as client:
        yield client


async def unread() -> AsyncIterator[bytes]:
    raise AssertionError("the body is read")
    yield b""


def asked(app: DirectApp) -> list[tuple[str, str]]:
    """Method and path of each route."""
    documented = [(method.upper(), path) for path, methods in app.openapi()["paths"].items() for method in methods]
    return [*documented, ("GET", "/openapi.json"), ("GET", "/docs"), ("HEAD", "/metrics"), ("HEAD", "/readyz")]


async def test_every_route_refuses_wrong_and_missing_tokens_before_it_reads_a_body(
    client: httpx.AsyncClient, guarded: DirectApp, backend: TellTaleBackend
) -> None:
    routes = asked(guarded)
    assert len(routes) > 30
    for method, path in (*routes, ("POST", "/v1/pools"), ("GET", "/no/such/route")):
        for value in WRONG:
            headers = {} if value is None else {"Authorization": value}
            content = unread() if method in ("POST", "PUT") else None
            if path in OPEN:
                assert (await client.request(method, path, headers=headers)).status_code == 200
                continue
            answer = await client.request(method, path, headers=headers, content=content)
            assert answer.status_code == 401, (method, path, value)
            assert answer.headers["www-authenticate"] == "Bearer"
    assert backend.requests == []


async def test_a_setting_frees_all_that_tells_how_a_server_does_and_nothing_else(backend: TellTaleBackend) -> None:
    app = create_app(backend, Settings(**TOKENS, auth_exempt_operational=True))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://sie") as client:
        free = {path for method, path in asked(app) if (await client.request(method, path)).status_code != 401}
        assert free == {*OPEN, "/health", "/metrics", "/tei/{model}/health"}
        assert (await client.get("/tei/org/model/health")).text == "ok"
        assert (await client.post("/tei/health", json={"inputs": "x"})).status_code == 401


async def test_every_route_passes_on_who_has_a_token(client: httpx.AsyncClient, guarded: DirectApp) -> None:
    for method, path in asked(guarded):
        answer = await client.request(method, path, headers={"Authorization": "Bearer right"})
        assert answer.status_code != 401, (method, path)


@pytest.mark.parametrize(
    ("path", "has"),
    [
        ("/v1/encode/org/model", {"error"}),
        ("/v1/configs/models", {"error"}),
        ("/v1/embeddings", {"error"}),
        ("/v2/embed", {"message", "code", "param"}),
        ("/embed", {"error", "error_type", "code", "param"}),
    ],
)
async def test_the_refusal_has_the_envelope_of_its_client(client: httpx.AsyncClient, path: str, has: set[str]) -> None:
    told = (await client.post(path, json={})).json()
    assert set(told) == has
    assert "UNAUTHORIZED" in (told["code"] if "code" in told else told["error"]["code"])


async def test_a_browser_may_ask_which_headers_it_may_send_without_a_token(backend: TellTaleBackend) -> None:
    app = create_app(backend, Settings(**TOKENS, cors_origins=("https://app.example.com",)))
    headers = {"Origin": "https://app.example.com", "Access-Control-Request-Method": "POST"}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://sie") as client:
        assert (await client.options("/v1/encode/org/model", headers=headers)).status_code < 300
        refused = await client.post("/v1/encode/org/model", headers={"Origin": headers["Origin"]})
    assert refused.status_code == 401
    assert refused.headers["access-control-allow-origin"] == headers["Origin"]


@pytest.mark.parametrize("path", sorted(each.decode() for each in SOCKETS))
def test_sockets_refuse_wrong_and_missing_tokens(guarded: DirectApp, backend: TellTaleBackend, path: str) -> None:
    page = TestClient(guarded, base_url="http://sie")
    for value in WRONG:
        headers = {} if value is None else {"Authorization": value}
        with pytest.raises(WebSocketDenialResponse) as refused, page.websocket_connect(path, headers=headers):
            pass
        assert refused.value.status_code == 401
    exempt = TestClient(create_app(backend, Settings(**TOKENS, auth_exempt_operational=True)), base_url="http://sie")
    for watching, headers in ((page, {"Authorization": "Bearer right"}), (exempt, {})):
        with watching.websocket_connect("/ws/status", headers=headers) as socket:
            assert socket.receive_json()["ready"] is True
