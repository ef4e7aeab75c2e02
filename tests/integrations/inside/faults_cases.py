"""What callers see of a server that is away or fails: the SDK's typed errors, and never a half list."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import threading
from collections.abc import Awaitable, Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from haystack import Document
from haystack.utils import Secret
from lancedb.embeddings import get_registry
from sie_integrations.chroma import SIEEmbeddingFunction
from sie_integrations.haystack import SIEDocumentEmbedder
from sie_integrations.lancedb import SIEEmbeddingFunction as LanceFunction
from sie_integrations.langchain import SIEEmbeddings
from sie_integrations.llamaindex import SIEEmbedding
from sie_sdk import ProvisioningError, RequestError, ServerError, SIEConnectionError

URL, MODEL, KEY, BUDGET = os.environ["URL"], "sie-fake/embedder", "zanzibar-key", {"provision_timeout_s": 0.5}
Embed = Callable[[str, str, list[str]], list[Any]]


def langchain(url: str, model: str) -> SIEEmbeddings:
    return SIEEmbeddings(model=model, base_url=url, api_key=KEY, settings=BUDGET)


def llamaindex(url: str, model: str) -> SIEEmbedding:
    return SIEEmbedding(model_name=model, base_url=url, api_key=KEY, settings=BUDGET)


def haystack(url: str, model: str) -> SIEDocumentEmbedder:
    return SIEDocumentEmbedder(model, url, Secret.from_token(KEY), BUDGET)


def lancedb(url: str, model: str) -> LanceFunction:
    get_registry().set_var("key", KEY)
    return LanceFunction.create(name=model, base_url=url, api_key="$var:key", settings=BUDGET)


def documents(texts: list[str]) -> list[Document]:
    return [Document(content=text) for text in texts]


WAYS: dict[str, Embed] = {
    "langchain": lambda url, model, texts: langchain(url, model).embed_documents(texts),
    "llamaindex": lambda url, model, texts: llamaindex(url, model).get_text_embedding_batch(texts),
    "haystack": lambda url, model, texts: haystack(url, model).run(documents(texts))["documents"],
    "chroma": lambda url, model, texts: SIEEmbeddingFunction(model, url, "CHROMA_KEY", BUDGET)(texts),
    "lancedb": lambda url, model, texts: lancedb(url, model).compute_source_embeddings(texts),
}
TASKS: dict[str, Callable[[str, str, list[str]], Awaitable[Any]]] = {
    "langchain": lambda url, model, texts: langchain(url, model).aembed_documents(texts),
    "llamaindex": lambda url, model, texts: llamaindex(url, model).aget_text_embedding_batch(texts),
    "haystack": lambda url, model, texts: haystack(url, model).run_async(documents(texts)),
}
each_way = pytest.mark.parametrize("embed", WAYS.values(), ids=WAYS)


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHROMA_KEY", KEY)


def refusal(status: int, code: str) -> tuple[int, bytes]:
    return status, json.dumps({"error": {"code": code, "message": "the reason"}}).encode()


VECTORS = {"model": "m", "items": [{"dense": {"dims": 2, "dtype": "float32", "values": [1.0, 2.0]}}]}
ANSWERS: dict[str, list[tuple[int, bytes]]] = {
    "cut": [(200, b"half")],
    "loading": [refusal(503, "MODEL_LOADING"), (200, json.dumps(VECTORS).encode())],
    "starting": [refusal(202, "PROVISIONING")],
    "full": [refusal(503, "QUEUE_FULL")],
    "locked": [refusal(401, "UNAUTHORIZED")],
}
"""By model: what is answered in turn, the last of them to every further request."""


@pytest.fixture
def failing() -> Iterator[str]:
    """A server that fails as the name of the model asks for."""
    given: dict[str, int] = {}

    class Failing(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            name = self.path.rpartition("/")[2]
            answers = ANSWERS[name]
            known = self.headers["Authorization"] == f"Bearer {KEY}"
            status, body = answers[min(given.get(name, 0), len(answers) - 1)] if known else refusal(500, "KEY_MISSING")
            given[name] = given.get(name, 0) + 1
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Retry-After", "0")
            self.send_header("Content-Length", str(len(body) + 9 * (name == "cut")))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *given: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Failing)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


@each_way
def test_a_dead_server_is_told(embed: Embed) -> None:
    with pytest.raises(SIEConnectionError, match=r"127\.0\.0\.1:9"):
        embed("http://127.0.0.1:9", MODEL, ["a"])


@each_way
def test_a_cut_answer_is_none(embed: Embed, failing: str) -> None:
    with pytest.raises(SIEConnectionError):
        embed(failing, "fault/cut", ["a"])


@each_way
def test_an_unknown_model_is_told(embed: Embed) -> None:
    with pytest.raises(RequestError, match="no/such"):
        embed(URL, "no/such", ["a"])


@each_way
def test_a_model_that_loads_is_waited_for(embed: Embed, failing: str) -> None:
    assert len(embed(failing, "fault/loading", ["a"])) == 1


@each_way
def test_a_wait_that_is_too_long_is_typed(embed: Embed, failing: str) -> None:
    with pytest.raises(ProvisioningError):
        embed(failing, "fault/starting", ["a"])
    with pytest.raises(ServerError, match="the reason"):
        embed(failing, "fault/full", ["a"])


@each_way
def test_a_key_that_is_refused_is_in_no_error_and_no_log(
    embed: Embed, failing: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(RequestError, match="the reason") as raised:
        embed(failing, "fault/locked", ["a"])
    assert KEY not in caplog.text
    told: BaseException | None = raised.value
    while told is not None:
        assert KEY not in f"{told!r}{told}{vars(told)}"
        told = told.__cause__ or told.__context__


@each_way
def test_a_text_that_is_none_leaves_no_half_list_and_an_empty_one_is_embedded(embed: Embed) -> None:
    with pytest.raises((TypeError, ValueError)):
        embed(URL, MODEL, ["a", None, "b"])  # type: ignore[list-item]
    assert len(embed(URL, MODEL, ["", "b"])) == 2


@each_way
def test_ten_thousand_documents_are_one_call(embed: Embed) -> None:
    assert len(embed(URL, MODEL, [f"text {place}" for place in range(10_000)])) == 10_000


@pytest.mark.parametrize("embed", TASKS.values(), ids=TASKS)
def test_a_cancelled_task_ends(embed: Callable[[str, str, list[str]], Awaitable[Any]]) -> None:
    async def cancelled() -> None:
        before = asyncio.all_tasks()
        task = asyncio.ensure_future(embed(URL, MODEL, ["text"] * 10_000))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 10)
        assert asyncio.all_tasks() == before
        assert await embed(URL, MODEL, ["a"])

    asyncio.run(cancelled())
