"""What callers see of a server that is away or fails: the SDK's typed errors, and never a half list."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from haystack import Document
from sie_integrations.chroma import SIEEmbeddingFunction
from sie_integrations.haystack import SIEDocumentEmbedder
from sie_integrations.lancedb import SIEEmbeddingFunction as LanceFunction
from sie_integrations.langchain import SIEEmbeddings
from sie_integrations.llamaindex import SIEEmbedding
from sie_sdk import RequestError, SIEConnectionError

URL, MODEL, BUDGET = os.environ["URL"], "sie-fake/embedder", {"provision_timeout_s": 0.5}
Embed = Callable[[str, str, list[str]], list[Any]]
WAYS: dict[str, Embed] = {
    "langchain": lambda url, model, texts: SIEEmbeddings(model=model, base_url=url, settings=BUDGET).embed_documents(
        texts
    ),
    "llamaindex": lambda url, model, texts: SIEEmbedding(
        model_name=model, base_url=url, settings=BUDGET
    ).get_text_embedding_batch(texts),
    "haystack": lambda url, model, texts: SIEDocumentEmbedder(model, url, settings=BUDGET).run(
        [Document(content=text) for text in texts]
    )["documents"],
    "chroma": lambda url, model, texts: SIEEmbeddingFunction(model, url, settings=BUDGET)(texts),
    "lancedb": lambda url, model, texts: LanceFunction.create(
        name=model, base_url=url, settings=BUDGET
    ).compute_source_embeddings(texts),
}
each_way = pytest.mark.parametrize("embed", WAYS.values(), ids=WAYS)


@pytest.fixture
def cutting() -> Iterator[str]:
    """A server whose answers end before they are whole."""

    class Cut(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"half")

        def log_message(self, *given: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Cut)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


@each_way
def test_a_dead_server_is_told(embed: Embed) -> None:
    with pytest.raises(SIEConnectionError, match=r"127\.0\.0\.1:9"):
        embed("http://127.0.0.1:9", MODEL, ["a"])


@each_way
def test_a_cut_answer_is_none(embed: Embed, cutting: str) -> None:
    with pytest.raises(SIEConnectionError):
        embed(cutting, MODEL, ["a"])


@each_way
def test_an_unknown_model_is_told(embed: Embed) -> None:
    with pytest.raises(RequestError, match="no/such"):
        embed(URL, "no/such", ["a"])


@each_way
def test_ten_thousand_documents_are_one_call(embed: Embed) -> None:
    assert len(embed(URL, MODEL, [f"text {place}" for place in range(10_000)])) == 10_000


def test_a_cancelled_task_ends() -> None:
    async def cancelled() -> None:
        embeddings = SIEEmbeddings(model=MODEL, base_url=URL)
        task = asyncio.create_task(embeddings.aembed_documents(["text"] * 10_000))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 10)
        assert len(await embeddings.aembed_query("a")) == 32

    asyncio.run(cancelled())
