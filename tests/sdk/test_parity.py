"""The two shells over a real local server: one sees what the other sees, sends what it sends, raises what it raises."""

from __future__ import annotations

import asyncio
import inspect
import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import numpy as np
import pytest
from sie_sdk import SIEAsyncClient, SIEClient, SIEConnectionError, wire

SAME_NAME = {"aclose": "close", "__aenter__": "__enter__", "__aexit__": "__exit__"}


@dataclass
class Scripted:
    """A server that gives the answers of its script in turn and records what was asked, and over how many sockets."""

    url: str = ""
    script: list[tuple[int, dict[str, str], bytes] | str] = field(default_factory=list)
    requests: list[tuple[str, str, dict[str, str], bytes]] = field(default_factory=list)
    connections: set[Any] = field(default_factory=set)
    release: threading.Event = field(default_factory=threading.Event)

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in handler.headers.items() if name.lower() != "host"}
        self.requests.append((handler.command, handler.path, headers, body))
        self.connections.add(handler.client_address)
        step = self.script.pop(0)
        if step == "hang up":
            handler.close_connection = True
            return
        if step == "hold":
            self.release.wait(30)
            handler.close_connection = True
            return
        status, headers, body = step
        handler.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body)


@pytest.fixture
def server() -> Iterator[Scripted]:
    scripted = Scripted()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        do_GET = do_POST = lambda handler: scripted.answer(handler)  # noqa: N815 - the base class's names

        def log_message(self, *args: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        scripted.url = f"http://127.0.0.1:{http.server_port}"
        thread = threading.Thread(target=http.serve_forever, args=(0.01,))
        thread.start()
        yield scripted
        scripted.release.set()
        http.shutdown()
        thread.join(10)


def ok(count: int = 1, **body: Any) -> tuple[int, dict[str, str], bytes]:
    item = {"dense": {"dims": 2, "dtype": "float32", "values": np.array([1, 2], np.float32)}}
    content = wire.pack({"model": "m", "items": [item] * count} | body)
    return 200, {"Content-Type": "application/msgpack", "X-Total-Time": "1.50", "X-SIE-Request-ID": "r"}, content


def refused(status: int, code: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    content = json.dumps({"error": {"code": code, "message": "the reason", "param": "items[0]"}}).encode()
    return status, {"Content-Type": "application/json", **headers}, content


def as_json(body: Any) -> tuple[int, dict[str, str], bytes]:
    return 200, {"Content-Type": "application/json"}, json.dumps(body).encode()


def plain(value: Any) -> Any:
    """What can be compared: arrays become their dtype and numbers, an error its type and facts."""
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.tolist()
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, list):
        return [plain(part) for part in value]
    if isinstance(value, SIEConnectionError):
        return type(value)
    if isinstance(value, Exception):
        return type(value), str(value), plain(vars(value))
    return value


def run_sync(url: str, name: str, arguments: tuple[Any, ...], call: dict[str, Any], client: dict[str, Any]) -> Any:
    with SIEClient(url, **client) as sie:
        try:
            return plain(getattr(sie, name)(*arguments, **call))
        except Exception as error:
            return plain(error)


def run_async(url: str, name: str, arguments: tuple[Any, ...], call: dict[str, Any], client: dict[str, Any]) -> Any:
    async def main() -> Any:
        async with SIEAsyncClient(url, **client) as sie:
            try:
                return plain(await getattr(sie, name)(*arguments, **call))
            except Exception as error:
                return plain(error)

    return asyncio.run(main())


def test_the_shells_have_the_same_public_methods_parameters_and_defaults():
    def surface(client: type) -> dict[str, Any]:
        found = {}
        for name, member in inspect.getmembers(client):
            if name in ("__init__", "__enter__", "__exit__", "__aenter__", "__aexit__") or not name.startswith("_"):
                function = member.fget if isinstance(member, property) else member
                parameters = inspect.signature(function).parameters.values()
                shape = [(p.name, p.kind, p.default, p.annotation) for p in parameters if p.name != "http_client"]
                found[SAME_NAME.get(name, name)] = (type(member), shape)
        return found

    assert surface(SIEClient) == surface(SIEAsyncClient)
    assert set(surface(SIEClient)) > {"base_url", "close", "encode", "extract", "get_model", "list_models", "score"}


def test_only_the_asynchronous_shell_is_asynchronous():
    for name in ("encode", "score", "extract", "list_models", "get_model"):
        assert inspect.iscoroutinefunction(getattr(SIEAsyncClient, name))
        assert not inspect.iscoroutinefunction(getattr(SIEClient, name))


ENCODE: tuple[str, tuple[Any, ...]] = ("encode", ("org/m", "x"))
SCENARIOS: dict[str, tuple[str, tuple[Any, ...], dict[str, Any], dict[str, Any], list[Any]]] = {
    "one": (*ENCODE, {}, {}, [ok(timing={"total_ms": 1})]),
    "many": ("encode", ("org/m", ["x", {"text": "y", "id": "b"}]), {}, {}, [ok(2)]),
    "settings": (
        *ENCODE,
        {
            "output_types": ["dense"],
            "instruction": "i",
            "output_dtype": "float16",
            "is_query": True,
            "options": {"a": 1},
            "gpu": "pool/l4",
            "input_type": "query",
            "dimensions": 64,
            "truncate": "start",
        },
        {"api_key": "k", "options": {"b": 2}},
        [ok()],
    ),
    "json": (*ENCODE, {}, {"wire_format": "json"}, [as_json({"model": "m", "items": [{}]})]),
    "score": (
        "score",
        ("org/m", "q", ["x", {"text": "y", "id": "b"}]),
        {"instruction": "i", "options": {"a": 1}, "gpu": "l4", "truncate": "error"},
        {},
        [as_json({"model": "m", "query_id": "q", "scores": [{"item_id": "b", "score": 1.5, "rank": 0}]})],
    ),
    "score refused": ("score", ("org/m", "q", "x"), {"max_oom_retries": 0}, {}, [refused(503, "RESOURCE_EXHAUSTED")]),
    "extract": (
        "extract",
        ("org/m", {"text": "x", "images": [b"\x89PNG\r\n\x1a\n"]}),
        {
            "labels": ["a"],
            "output_schema": {"type": "object"},
            "instruction": "i",
            "options": {"threshold": 0.5},
            "gpu": "l4",
            "truncate": "start",
        },
        {"wire_format": "json"},
        [as_json({"model": "m", "items": [{"id": "a", "entities": [{"text": "t", "label": "a", "score": 1}]}]})],
    ),
    "extract several": (
        "extract",
        ("org/m", ["x", "y"]),
        {"wait_for_capacity": False, "provision_timeout_s": 1},
        {},
        [as_json({"model": "m", "items": [{}, {}]})],
    ),
    "bad labels": ("extract", ("org/m", "x"), {"labels": "a"}, {}, []),
    "bad image": ("encode", ("org/m", {"images": [7]}), {}, {}, []),
    "models": ("list_models", (), {}, {}, [as_json({"models": [{"name": "m"}]})]),
    "model": ("get_model", ("org/m",), {}, {}, [as_json({"name": "m"})]),
    "no such model": ("get_model", ("org/m",), {}, {}, [refused(404, "MODEL_NOT_FOUND")]),
    "bad item": ("encode", ("org/m", 7), {}, {}, []),
    "bad id": ("encode", ("..", "x"), {}, {}, []),
    "refused": (*ENCODE, {}, {}, [refused(400, "INPUT_TOO_LONG")]),
    "failed": (*ENCODE, {}, {}, [refused(500, "INFERENCE_ERROR")]),
    "load failed": (*ENCODE, {}, {}, [refused(502, "MODEL_LOAD_FAILED")]),
    "redirected": (*ENCODE, {}, {}, [(307, {"Location": "http://elsewhere/"}, b"")]),
    "unreadable": (*ENCODE, {}, {}, [(200, {"Content-Type": "application/msgpack"}, b"\xc1")]),
    "too few": ("encode", ("org/m", ["x", "y"]), {}, {}, [ok()]),
    "scaled from zero": (*ENCODE, {}, {}, [refused(202, "PROVISIONING", **{"Retry-After": "0"}), ok()]),
    "not waited for": (*ENCODE, {"wait_for_capacity": False}, {}, [refused(202, "PROVISIONING")]),
    "busy": (*ENCODE, {}, {}, [refused(429, "RATE_LIMITED", **{"Retry-After": "0"})] * 2 + [ok()]),
    "loading": (*ENCODE, {}, {}, [refused(503, "MODEL_LOADING", **{"Retry-After": "0"}), ok()]),
    "out of budget": (*ENCODE, {"provision_timeout_s": 0}, {}, [refused(503, "QUEUE_FULL")]),
    "no memory": (*ENCODE, {"max_oom_retries": 0}, {}, [refused(503, "RESOURCE_EXHAUSTED")]),
    "hung up": (*ENCODE, {}, {}, ["hang up", ok()]),
    "hung up for good": (*ENCODE, {"wait_for_capacity": False}, {}, ["hang up"]),
    "too slow": (*ENCODE, {}, {"read_timeout_s": 0.1}, ["hold"]),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_shells_send_return_and_raise_the_same(server, name):
    method, arguments, call, client, script = SCENARIOS[name]
    seen = []
    for run in (run_sync, run_async):
        server.script = list(script)
        outcome = run(server.url, method, arguments, call, client)
        requests = [(verb, path, headers | {"user-agent": ""}, body) for verb, path, headers, body in server.requests]
        assert not server.script, "not the whole script was asked for"
        assert len(requests) == len(script)
        server.requests.clear()
        seen.append((outcome, requests))
    assert seen[0] == seen[1]


def test_nothing_listens_is_a_connection_error_once_the_budget_ends():
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unheard.getsockname()[1]}"
        for call in ({"wait_for_capacity": False}, {"provision_timeout_s": 0.6}):
            assert run_sync(url, *ENCODE, call, {}) == run_async(url, *ENCODE, call, {}) == SIEConnectionError


def test_both_shells_warn_once_of_a_server_they_do_not_reach(caplog):
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unheard.getsockname()[1]}"
        for run in (run_sync, run_async):
            caplog.clear()
            run(url, *ENCODE, {"provision_timeout_s": 0.6}, {})
            assert [record.levelname for record in caplog.records if record.name == "sie_sdk"] == ["WARNING"]
            assert url in caplog.text


def test_a_certificate_that_is_none_is_not_tried_again(server):
    url = server.url.replace("http:", "https:")
    assert run_sync(url, *ENCODE, {}, {}) == run_async(url, *ENCODE, {}, {}) == SIEConnectionError


def test_a_client_uses_one_connection_again_and_again(server):
    server.script = [ok()] * 40
    with SIEClient(server.url) as client:
        for _ in range(20):
            client.encode("org/m", "x")
    assert len(server.connections) == 1

    async def main() -> None:
        async with SIEAsyncClient(server.url) as client:
            for _ in range(20):
                await client.encode("org/m", "x")

    asyncio.run(main())
    assert len(server.connections) == 2


def test_calls_of_one_async_client_run_at_once(server):
    server.script = ["hold", "hold", ok()]

    async def main() -> list[Any]:
        async with SIEAsyncClient(server.url) as client:
            held = [asyncio.create_task(client.encode("org/m", "x", wait_for_capacity=False)) for _ in range(2)]
            while len(server.requests) < 2:
                await asyncio.wait(held, timeout=0.01)
            answered = await client.encode("org/m", "x")
            server.release.set()
            return [answered, *await asyncio.gather(*held, return_exceptions=True)]

    answered, *held = asyncio.run(asyncio.wait_for(main(), 30))
    assert answered["dense"].tolist() == [1, 2]
    assert [type(outcome) for outcome in held] == [SIEConnectionError] * 2


def test_a_client_given_is_used_and_left_open(server):
    server.script = [ok()]
    with httpx.Client(headers={"X-Own": "1"}) as own:
        with SIEClient(server.url, http_client=own) as client:
            client.encode("org/m", "x")
        assert not own.is_closed
    assert server.requests[0][2]["x-own"] == "1"


def test_a_closed_client_holds_no_connection(server):
    server.script = [ok()] * 2
    client = SIEClient(server.url)
    client.encode("org/m", "x")
    client.close()
    with pytest.raises(RuntimeError, match="closed"):
        client.encode("org/m", "x")
