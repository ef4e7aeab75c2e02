"""The two shells over a real local server: one sees what the other sees, sends what it sends, raises what it raises."""

from __future__ import annotations

import asyncio
import inspect
import re
import socket
from collections.abc import Iterator
from contextlib import aclosing, closing
from typing import Any

import httpx
import pytest
from sie_sdk import SIEAsyncClient, SIEClient, SIEConnectionError

from tests.sdk.scripted import as_json, ok, ranked, refused, run_async, run_sync

CALLS = (
    *(
        "encode",
        "encode_many",
        "score",
        "score_many",
        "extract",
        "extract_many",
        "tokenize",
        "list_models",
        "get_model",
        "health",
    ),
    *("create_pool", "get_pool", "delete_pool", "get_capacity", "wait_for_capacity"),
)
STREAMS = ("encode_iter", "score_iter", "extract_iter", "watch")
SAME_NAME = {"aclose": "close", "__aenter__": "__enter__", "__aexit__": "__exit__"}


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
    assert set(surface(SIEClient)) == {*CALLS, *STREAMS, "__init__", "__enter__", "__exit__", "base_url", "close"}


def test_help_and_notebooks_see_each_argument_with_its_default_and_its_docs():
    shown = inspect.signature(SIEClient.encode).parameters
    assert {"output_types", "dimensions", "truncate", "timeout_s"} < set(shown)
    assert (shown["wait_for_capacity"].default, shown["dimensions"].default) == (True, None)
    assert (shown["truncate"].kind, shown["truncate"].annotation) == (inspect.Parameter.KEYWORD_ONLY, "Truncate | None")
    for name in ("encode", "score", "extract"):
        call = getattr(SIEClient, name)
        for argument in list(inspect.signature(call).parameters)[1:]:
            assert re.search(rf"^ {{12}}(\w+, )*{argument}(, \w+)*: ", call.__doc__, re.MULTILINE), (name, argument)


def test_only_the_asynchronous_shell_is_asynchronous():
    for name in CALLS:
        assert inspect.iscoroutinefunction(getattr(SIEAsyncClient, name))
        assert not inspect.iscoroutinefunction(getattr(SIEClient, name))


TOKEN = {"id": 7, "text": "x", "special": False, "start": 0, "stop": 1}
FLEET: dict[str, Any] = {
    "status": "healthy",
    "type": "gateway",
    "configured_gpu_types": ["l4", "h100"],
    "live_gpu_types": ["l4"],
    "workers": [
        {"gpu": "l4", "healthy": True, "gpu_count": 2, "ready_gpu_slots": 1, "loaded_models": ["org/m"]},
        {"gpu": "l4", "healthy": False, "gpu_count": 1, "ready_gpu_slots": 0, "loaded_models": ["org/n"]},
        {"gpu": "a100-80gb", "healthy": True, "gpu_count": 8, "ready_gpu_slots": 8, "loaded_models": []},
    ],
}
ONE_BY_ONE = {"batch_size": 2, "parallel": 1, "progress": False}
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
            "timeout_s": 20,
            "priority": "bulk",
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
    "too slow for this call": (*ENCODE, {"timeout_s": 0.1}, {}, ["hold"]),
    "models too slow": ("list_models", (), {"timeout_s": 0.1}, {}, ["hold"]),
    "no such argument": (*ENCODE, {"output_type": ["dense"]}, {}, []),
    "no such argument of a look-up": ("health", (), {"gpu": "l4"}, {}, []),
    "health": ("health", (), {}, {"api_key": "k"}, [as_json({"status": "healthy", "models": []})]),
    "capacity": ("get_capacity", (), {"gpu": "L4"}, {"api_key": "k"}, [as_json(FLEET)]),
    "capacity of a server": ("get_capacity", (), {}, {}, [as_json({"status": "healthy", "type": "standalone"})]),
    "capacity there is": ("wait_for_capacity", ("l4",), {}, {}, [as_json(FLEET)]),
    "capacity that comes": (
        *("wait_for_capacity", ("l4",), {"poll_interval_s": 0, "model": "org/m"}, {}),
        [ok(), as_json({**FLEET, "workers": []}), as_json(FLEET)],
    ),
    "capacity with a model that ranks": (
        *("wait_for_capacity", ("l4",), {"model": "org/m"}, {}),
        [refused(400, "INVALID_INPUT", param="model"), ranked(0), as_json(FLEET)],
    ),
    "capacity that never comes": ("wait_for_capacity", ("h100",), {"timeout_s": 0}, {}, [as_json(FLEET)]),
    "health of something else": ("health", (), {}, {}, [as_json({"up": True})]),
    "tokens of one": ("tokenize", ("org/m", "x"), {"gpu": "l4"}, {"api_key": "k"}, [as_json([[TOKEN]])]),
    "tokens of many": ("tokenize", ("org/m", ["x", "y"]), {"add_special_tokens": False}, {}, [as_json([[TOKEN], []])]),
    "tokens of too few": ("tokenize", ("org/m", ["x", "y"]), {}, {}, [as_json([[TOKEN]])]),
    "no tokens": ("tokenize", ("org/m", {"text": "x"}), {}, {}, []),
    "encode many": (
        "encode_many",
        ("org/m", [{"text": "x", "id": "a"}, "y", 7, "z"]),
        ONE_BY_ONE | {"output_dtype": "float32", "options": {"a": 1}},
        {"options": {"b": 2}},
        [ok(2), ok()],
    ),
    "encode many, some fail": (
        "encode_many",
        ("org/m", ["x", {"text": "y", "id": "b"}, "z"]),
        ONE_BY_ONE,
        {},
        [refused(400, "INVALID_INPUT"), ok(), refused(413, "PAYLOAD_TOO_LARGE")],
    ),
    "encode many, none may": ("encode_many", ("org/m", ["x"] * 9), ONE_BY_ONE, {}, [refused(401, "UNAUTHORIZED")]),
    "encode one as many": ("encode_many", ("org/m", "x"), {}, {}, []),
    "encode one by one": (
        "encode_iter",
        ("org/m", [{"text": "x", "id": "a"}, "y", 7, "z"]),
        ONE_BY_ONE | {"output_dtype": "float32", "options": {"a": 1}},
        {"options": {"b": 2}},
        [ok(2), ok()],
    ),
    "encode one by one, then no more": (
        *("encode_iter", ("org/m", ["x", "y", "z"]), ONE_BY_ONE, {}),
        [ok(2), refused(401, "UNAUTHORIZED")],
    ),
    "encode one by one, one alone": ("encode_iter", ("org/m", "x"), {}, {}, []),
    "encode one by one, no such argument": ("encode_iter", ("org/m", ["x"]), {"labels": []}, {}, []),
    "pool": (
        "create_pool",
        ("mine", {"l4": 2}),
        {"gpu_caps": {"l4": 4}, "pinned_models": ("org/m",), "queue_pool": "bulk", "minimum_worker_count": 1},
        {"api_key": "k"},
        [(201, {"Content-Type": "application/json"}, b'{"name": "mine", "status": {"state": "pending"}}')],
    ),
    "pool with nothing said": ("create_pool", ("mine",), {}, {}, [as_json({"name": "mine"})]),
    "pool refused": ("create_pool", ("mine",), {}, {}, [refused(400, "INVALID_INPUT")]),
    "pool without a name": ("create_pool", ("",), {}, {}, []),
    "pool of less than no workers": ("create_pool", ("p",), {"minimum_worker_count": -1}, {}, []),
    "pool told": ("get_pool", ("mine",), {}, {}, [as_json({"name": "mine"})]),
    "pool unknown": ("get_pool", ("mine",), {}, {}, [refused(404, "POOL_NOT_FOUND")]),
    "pool of none": ("get_pool", (), {}, {}, []),
    "pool deleted": ("delete_pool", ("mine",), {}, {}, [(204, {}, b"")]),
    "pool not deleted": ("delete_pool", ("default",), {}, {}, [refused(403, "FORBIDDEN")]),
    "pool gone already": ("delete_pool", ("mine",), {}, {}, [refused(404, "POOL_NOT_FOUND")]),
    "score many": (
        "score_many",
        ("org/m", [("p", ["x", {"text": "y", "id": "b"}, "z"]), ({"text": "q", "id": "q"}, [])]),
        ONE_BY_ONE | {"instruction": "i"},
        {},
        [ranked(0, 1), ranked(0)],
    ),
    "score one by one": (
        "score_iter",
        ("org/m", [("p", ["x", {"text": "y", "id": "b"}, "z"]), ({"text": "q", "id": "q"}, [])]),
        ONE_BY_ONE,
        {},
        [ranked(0, 1), ranked(0)],
    ),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_shells_send_return_and_raise_the_same(server, name):
    method, arguments, call, client, script = SCENARIOS[name]
    seen = []
    for run in (run_sync, run_async):
        server.script = list(script)
        outcome = run(server.url, method, arguments, call, client)
        assert all(server.taken.acquire(timeout=30) for _ in script), "not the whole script was asked for"
        requests = [(verb, path, headers | {"user-agent": ""}, body) for verb, path, headers, body in server.requests]
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


def test_a_loop_over_results_reads_a_few_requests_ahead_and_sends_no_more_once_it_is_left(server):
    server.script = [ok(2)] * 4
    read: list[str] = []

    def items() -> Iterator[str]:
        for place in range(10**9):
            read.append(str(place))
            yield read[-1]

    with SIEClient(server.url) as client, closing(client.encode_iter("org/m", items(), **ONE_BY_ONE)) as results:
        assert next(results)["dense"].tolist() == [1, 2]
    assert len(read) == 4

    async def main() -> None:
        client = SIEAsyncClient(server.url)
        async with client, aclosing(client.encode_iter("org/m", items(), **ONE_BY_ONE)) as results:
            assert (await anext(results))["dense"].tolist() == [1, 2]

    asyncio.run(main())
    assert len(read) == 8
    assert len(server.requests) <= 4


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
