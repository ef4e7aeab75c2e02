"""A request that the queue does not take is refused before anything is made for it, with its usual answer."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import httpx
import orjson
import pytest
import pytest_asyncio
from sie_sdk import wire

from sie_core.api import Gate, create_app
from sie_core.contracts import InferenceError, InferenceRequest
from sie_core.settings import Settings
from tests.api.conftest import TellTaleBackend

ENCODE, EMBEDDINGS = "/v1/encode/org/model", "/v1/embeddings"
ITEMS = {"items": [{"text": "x"}]}
BODIES: dict[str, dict[str, Any]] = {
    ENCODE: ITEMS,
    EMBEDDINGS: {"model": "org/model", "input": ["x"]},
    "/v1/score/org/model": ITEMS | {"query": {"text": "q"}},
    "/v2/embed": {"model": "org/model", "texts": ["x"], "input_type": "search_query", "embedding_types": ["float"]},
    "/v2/rerank": {"model": "org/model", "query": "q", "documents": ["x"]},
    "/embed": {"inputs": "x"},
    "/tei/org/model/embeddings": {"model": "org/model", "input": "x"},
}


class Refusing(TellTaleBackend):
    """Refuses every request that it is asked about."""

    def __init__(self) -> None:
        super().__init__()
        self.judged: list[InferenceRequest] = []
        self.act = self._act

    async def _act(self, request: InferenceRequest) -> None:
        if request.model == "org/unknown":
            raise InferenceError("MODEL_NOT_FOUND", "No model 'org/unknown'.", param="model")
        raise self._full()

    def refuse(self, request: InferenceRequest) -> None:
        self.judged.append(request)
        if request.model == "org/unknown":
            raise InferenceError("MODEL_NOT_FOUND", "No model 'org/unknown'.", param="model")
        raise self._full()

    def _full(self) -> InferenceError:
        return InferenceError("QUEUE_FULL", "The answer would take too long.", retry_after_s=7.0)


@pytest.fixture
def backend() -> Refusing:
    return Refusing()


def scope(path: str, headers: dict[str, str], method: str = "POST") -> dict[str, Any]:
    raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    return {"type": "http", "method": method, "path": path, "headers": raw, "client": ("10.0.0.1", 5)}


def sent(body: bytes, **headers: str) -> dict[str, str]:
    given = {"Host": "sie", "Content-Type": "application/json", "Content-Length": str(len(body))}
    return given | {name.replace("_", "-"): value for name, value in headers.items()}


Early = Callable[..., Any]


@pytest.fixture
def app(backend: Refusing, settings: Settings, gate: Gate) -> Any:
    return create_app(backend, settings, gate=gate, refusing=backend)


@pytest_asyncio.fixture
async def early(app: Any, backend: Refusing, client: httpx.AsyncClient) -> Early:
    assert (await client.post("/v1/score/org/model", json=BODIES["/v1/score/org/model"])).status_code == 503
    backend.requests.clear()

    def judge(path: str, body: bytes, method: str = "POST", **headers: str) -> Any:
        return app.early(scope(path, sent(body, **headers), method), body)

    return judge


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("headers", [{}, {"X_SIE_Request_ID": "mine", "X_SIE_SDK_Version": "0.3"}])
async def test_an_early_refusal_is_the_answer_of_every_api(client, backend, early, path, headers) -> None:
    body = orjson.dumps(BODIES[path])
    plain = await client.post(path, content=body, headers=sent(body, **headers))
    status, raw, content = early(path, body, **headers)
    made = httpx.Headers(raw)
    assert (status, content) == (plain.status_code, plain.content)
    assert status in (503, 429)
    assert made["retry-after"] == plain.headers["retry-after"] == "7"
    ids = [made.pop("x-sie-request-id"), plain.headers.pop("x-sie-request-id")]
    assert ids == ["mine", "mine"] if headers else all(re.fullmatch("[0-9a-f]{32}", each) for each in ids)
    assert dict(made) == dict(plain.headers)
    assert [each.model for each in backend.judged] == [each.model for each in backend.requests]


async def test_a_msgpack_body_is_refused_early_and_all_are_counted(client, early) -> None:
    status, raw, _ = early(ENCODE, wire.pack(ITEMS), Content_Type="application/msgpack")
    assert (status, httpx.Headers(raw)["content-type"]) == (503, "application/json")
    counted = (await client.get("/metrics")).text
    route = 'method="POST",route="/v1/encode/{model:path}",status="503"'
    assert f"sie_http_requests_total{{{route}}} 1.0" in counted


JSON = orjson.dumps(ITEMS)


@pytest.mark.parametrize(
    ("path", "body", "headers"),
    [
        (ENCODE, b"{", {}),
        (ENCODE, b'{"items": []}', {}),
        (ENCODE, JSON, {"X_SIE_Timeout_Ms": "soon"}),
        (ENCODE, JSON, {"Content_Type": "image/png"}),
        (ENCODE, JSON, {"Accept": "image/png"}),
        (ENCODE, JSON, {"Content_Encoding": "gzip"}),
        (ENCODE, orjson.dumps({"items": [{"text": "x" * 900}] * 12}), {}),
        (ENCODE, JSON, {"Origin": "http://elsewhere"}),
        ("/v1/encode/../model", JSON, {}),
        ("/v1/encode/org/unknown", JSON, {}),
        (EMBEDDINGS, orjson.dumps({"model": "org/model", "input": [1, 2]}), {}),
        ("/v1/nothing", JSON, {}),
    ],
    ids=[
        *("no JSON", "no items", "timeout", "content type", "accept", "compressed", "too large", "origin"),
        *("model id", "unknown model", "token ids", "no route"),
    ],
)
async def test_what_else_is_wrong_is_told_first(client, early, path, body, headers) -> None:
    assert early(path, body, **headers) is None
    reply = await client.post(path, content=body, headers=sent(body, **headers))
    assert 400 <= reply.status_code < 500


async def test_a_client_without_its_token_is_told_so_first(backend) -> None:
    app = create_app(backend, Settings(auth_mode="token", auth_token="secret"), refusing=backend)
    assert app.early is not None
    headers = {"Authorization": "Bearer secret"}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://sie", headers=headers) as client:
        assert (await client.post(ENCODE, json=ITEMS)).status_code == 503
    assert app.early(scope(ENCODE, sent(JSON)), JSON) is None
    refused = app.early(scope(ENCODE, sent(JSON, Authorization="Bearer secret")), JSON)
    assert refused is not None
    assert refused[0] == 503


async def test_the_gate_refuses_first(client, backend, gate: Gate, early) -> None:
    for _ in range(2):
        gate.enter()
    backend.judged.clear()
    plain = await client.post(ENCODE, content=b"{", headers=sent(b"{"))
    status, _, content = early(ENCODE, b"{")
    assert (status, content) == (plain.status_code, plain.content)
    assert b"SIE_MAX_CONCURRENT_REQUESTS" in content
    assert early(ENCODE, b"{", X_Forwarded_For="10.0.0.7") is None  # its address decides who is promised a place
    gate.leave()
    gate.close()
    assert early(ENCODE, JSON) is None
    assert not backend.judged


def test_who_was_promised_a_place_is_let_pass_by_the_gate() -> None:
    now = 0.0
    gate = Gate(10, clock=lambda: now)
    for _ in range(40):
        gate.enter()
        gate.leave()
    for _ in range(10):
        gate.enter()
    with pytest.raises(InferenceError) as refused:
        gate.refuse("mine")
    assert refused.value.retry_after_s is not None
    with pytest.raises(InferenceError):
        gate.refuse("another")
    now += refused.value.retry_after_s
    for _ in range(2):
        gate.refuse("mine")
    gate.enter("mine")
    with pytest.raises(InferenceError):
        gate.refuse("mine")


def test_nothing_is_judged_early_where_nobody_was_refused(app, backend) -> None:
    assert app.early(scope(ENCODE, sent(JSON)), JSON) is None
    assert not backend.judged


async def test_a_request_that_is_let_pass_is_read_once(app, backend, early, monkeypatch) -> None:
    backend.act = None
    monkeypatch.setattr(backend, "refuse", backend.judged.append)
    given = scope(ENCODE, sent(JSON)) | {"query_string": b"", "http_version": "1.1", "scheme": "http"}
    assert app.early(given, JSON) is None
    replies: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": JSON, "more_body": False}

    async def send(message: Any) -> None:
        replies.append(message)

    await app(given, receive, send)
    assert replies[0]["status"] == 200
    assert backend.requests[0] is backend.judged[0]


def test_a_backend_that_cannot_tell_refuses_nothing_early() -> None:
    assert create_app(TellTaleBackend(), Settings()).early is None
