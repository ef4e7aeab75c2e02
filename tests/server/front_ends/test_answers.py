"""Clients cannot tell two front ends from one process: answers, refusals and counts are the same."""

from __future__ import annotations

import re

import httpx
import pytest
from click.testing import CliRunner
from sie_cluster.frontends.run import serve
from sie_sdk.wire import pack

from sie_core.cli.serve import command
from sie_core.plugins import PluginSet
from sie_core.serving.listening import ListenError
from sie_core.settings import Settings
from tests.conftest import Server
from tests.server.front_ends.connecting import answer, connect_to_each, post

DENSE, WORDS, BOUND_S = "sie-fake/embedder", [f"text {place}" for place in range(50)], 60.0
MSGPACK = {"Content-Type": "application/msgpack", "Accept": "application/msgpack"}
OF_A_REQUEST = re.compile(r"x-sie-(request-id|runtime-instance)|x-.*time|date|content-length")
CALLS = [
    ("POST", f"/v1/encode/{DENSE}", {"json": {"items": [{"text": each} for each in WORDS]}}),
    ("POST", f"/v1/encode/{DENSE}", {"content": pack({"items": [{"text": "a"}]}), "headers": MSGPACK}),
    ("POST", f"/v1/encode/{DENSE}", {"json": {"items": [{"text": "a"}], "params": {"options": {"nothing": 1}}}}),
    ("POST", f"/v1/encode/{DENSE}", {"json": {"items": [{"token_ids": [1, 2]}]}}),
    ("POST", f"/v1/encode/{DENSE}", {"json": {"items": [{"text": 7}]}}),
    ("POST", "/v1/encode/no/such", {"json": {"items": [{"text": "a"}]}}),
    ("POST", f"/v1/score/{DENSE}", {"json": {"query": {"text": "a"}, "items": [{"text": each} for each in WORDS]}}),
    ("POST", "/v1/embeddings", {"json": {"model": DENSE, "input": WORDS}}),
    ("POST", "/v1/embeddings", {"json": {"model": DENSE, "input": [[1, 2], [3]]}}),
    ("POST", "/v1/rerank", {"json": {"model": DENSE, "query": "a", "documents": WORDS, "top_n": 3}}),
    ("POST", f"/tei/{DENSE}/tokenize", {"json": {"inputs": "two words"}}),
    ("POST", f"/tei/{DENSE}", {"json": {"inputs": "what the model does"}}),
    ("POST", "/v1/classify", {"json": {"model": DENSE, "input": "a"}}),
    ("GET", "/v1/encode/no/such", {}),
    ("GET", "/readyz", {}),
    ("HEAD", "/health", {"headers": {"Accept-Encoding": "identity"}}),
    ("GET", "/v1/models/no%2Fsuch?a=b%20c", {}),
    ("GET", "/v1/plugins", {}),
    ("GET", "/openapi.json", {"headers": {"Accept-Encoding": "gzip"}}),
    ("POST", "/nothing/here", {"json": {}}),
]


@pytest.mark.parametrize(("method", "path", "more"), CALLS, ids=lambda each: each if isinstance(each, str) else "")
def test_an_answer_is_that_of_one_process(front_ends_server: Server, fake_server: str, method, path, more):
    with httpx.Client(timeout=BOUND_S) as client:
        mine, theirs = (client.request(method, url + path, **more) for url in (front_ends_server.url, fake_server))
    assert (mine.status_code, told(mine)) == (theirs.status_code, told(theirs))
    assert headers_of(mine) == headers_of(theirs)


def told(reply: httpx.Response) -> bytes:
    """What a reply says, without its times and its id."""
    if reply.headers.get("content-type") == MSGPACK["Accept"]:
        return reply.content.partition(b"usage")[2]  # the times come before
    times = rb'"(?:[a-z_]+_ms|created|id|request_id)": ?(?:[0-9.]+|"[0-9a-z-]+")'
    return re.sub(times, b"", reply.content)


def headers_of(reply: httpx.Response) -> dict[str, str]:
    return {name: value for name, value in reply.headers.items() if not OF_A_REQUEST.match(name)}


def test_requests_of_all_front_ends_are_counted_together_and_once(front_ends_server: Server):
    route = 'sie_http_requests_total{method="POST",route="/v1/score/{model:path}",status="200"} '

    def counted() -> float:
        lines = httpx.get(f"{front_ends_server.url}/metrics", timeout=BOUND_S).text.splitlines()
        (line,) = [each for each in lines if each.startswith(route)] or [f"{route}0"]
        return float(line.removeprefix(route))

    before, body = counted(), {"query": {"text": "a"}, "items": [{"text": "b"}]}
    for connection in connect_to_each(front_ends_server).values():
        for _ in range(3):
            post(connection, f"/v1/score/{DENSE}", body)
            assert answer(connection)[0] == 200
        connection.close()
    assert counted() == before + 6


def test_two_servers_do_not_share_a_port(front_ends_server: Server):
    port = int(front_ends_server.url.rpartition(":")[2])
    settings = Settings(http_host="127.0.0.1", http_port=port, frontends=2)
    with pytest.raises(ListenError, match="another process has that port"):
        serve(settings, PluginSet(), lambda told: None)


def test_without_its_distribution_the_command_names_it(monkeypatch):
    monkeypatch.setattr("sie_core.cli.serve.entry_points", lambda group: [])
    done = CliRunner().invoke(command, ["--frontends", "2", "--port", "0"])
    assert done.exit_code == 1
    assert "the distribution sie-cluster, which has front ends, is not installed" in done.output
