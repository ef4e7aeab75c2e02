"""What is refused is refused by type, and nothing of it is written."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from sie_cluster.config_service.api.tokens import Tokens
from sie_sdk.errors import ERRORS

from sie_core.auth import TokenSource
from sie_core.catalog.configs.reading import LARGEST_CONFIG
from tests.config_service.api.serving import TINY, Served, serving

ADMIN = {"Authorization": "Bearer the-admin"}
BOMB = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)
)
HOSTILE_IDS = [
    "",
    "status",
    "acme/tiny/status",
    "../etc/passwd",
    "acme/../../x",
    "a\\b",
    "a b",
    "/acme",
    "-acme",
    "acme\n/x",
    "acme\0",
    "ac\u0301me",
    "x" * 257,
    "acme?x",
    "%2e%2e/x",
]


def check(reply: httpx.Response, status: int, error: str) -> dict[str, Any]:
    """Check that a reply is an error of the table in the published shape, and return it."""
    told: dict[str, Any] = reply.json()["error"]
    assert (reply.status_code, told["error"]) == (status, error), reply.text
    assert ERRORS[told["code"]].status == status
    assert told["message"]
    assert set(reply.json()) == {"error"}
    return told


@pytest.fixture
async def untouched(served: Served) -> AsyncIterator[Served]:
    """A service of which a test must not change anything."""
    before = served.kept()
    yield served
    assert served.kept() == before
    assert (await served.client.get("/v1/configs/epoch")).json()["epoch"] == 0
    assert set(served.service.registry.catalog.configs) == {"acme/base"}


@pytest.mark.parametrize("model_id", HOSTILE_IDS)
async def test_what_cannot_be_an_id_is_refused_on_every_route(untouched: Served, model_id: str) -> None:
    posted = await untouched.client.post("/v1/configs/models", json={**TINY, "sie_id": model_id})
    check(posted, 400, "invalid_model_id")
    path = "/v1/configs/models/" + "".join(f"%{byte:02x}" for byte in model_id.encode())
    for method, body in (("GET", None), ("PUT", TINY), ("DELETE", None)):
        told = await untouched.client.request(method, path, json=body)
        if "\n" in model_id:  # no route matches a path with a line end
            check(told, 404, "not_found")
        else:
            check(told, 400, "invalid_model_id")


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        (b"", 400, "parse_error"),
        (b"[]", 400, "parse_error"),
        (b"sie_id: [", 400, "parse_error"),
        (b"\xff\xfe", 400, "parse_error"),
        (b"[" * 5_000, 400, "parse_error"),
        (b"{" * 100_000, 400, "parse_error"),
        (b"a: " + b"[" * 300 + b"]" * 300, 400, "parse_error"),
        (BOMB.encode(), 400, "parse_error"),
        (b"a: &a [*a]", 400, "parse_error"),
        (b"sie_id: 1" + b":1" * 300_000, 400, "parse_error"),
        (b"!!python/object/apply:os.system [id]", 400, "parse_error"),
        (b"sie_id: acme/tiny\nsie_id: acme/x\n", 400, "parse_error"),
        (b"sie_id: acme/tiny", 422, "validation_error"),
        (b"profiles: {default: {}}", 422, "validation_error"),
        (b"sie_id: 3\nprofiles: {default: {}}", 422, "validation_error"),
        (b"sie_id: acme/tiny\nhf_id: acme/x\nprofiles: {default: {}}\nsurprise: 1", 422, "validation_error"),
        (b"sie_id: acme/tiny\nhf_id: acme/x\nprofiles: {q: {extends: default}}", 422, "validation_error"),
        (b"sie_id: acme/tiny\nhf_id: acme/x\nprofiles: {default: {adapter_path: none}}", 422, "validation_error"),
        (b"sie_id: acme/tiny\nhf_id: acme/x\nprofiles: {default: {adapter_path: 3}}", 422, "validation_error"),
        (b"sie_id: acme/tiny\nweights_path: x\nprofiles: {default: {adapter_path: fake}}", 422, "validation_error"),
        (b"sie_id: acme/base\npool: l4\nprofiles: {x: {extends: default}}", 422, "validation_error"),
    ],
)
async def test_a_body_that_is_no_config_is_refused(untouched: Served, body: bytes, status: int, error: str) -> None:
    told = check(await untouched.client.post("/v1/configs/models", content=body), status, error)
    if error == "validation_error":
        assert all(each["message"] for each in told["details"])


async def test_a_body_has_a_mebibyte_at_most_whether_announced_or_not(untouched: Served) -> None:
    largest, beyond = (json.dumps({"x": "y" * (LARGEST_CONFIG - 9 + more)}).encode() for more in (0, 1))
    assert (len(largest), len(beyond)) == (LARGEST_CONFIG, LARGEST_CONFIG + 1)
    read = 0

    async def pieces() -> AsyncIterator[bytes]:
        nonlocal read
        for start in range(0, 64 * LARGEST_CONFIG, 65_536):
            read = start
            yield b" " * 65_536

    for method, path in (("POST", "models"), ("PUT", "models/acme/tiny"), ("POST", "resolve")):
        url = f"/v1/configs/{path}"
        assert (await untouched.client.request(method, url, content=largest)).status_code in (400, 422)
        check(await untouched.client.request(method, url, content=beyond), 413, "payload_too_large")
        check(await untouched.client.request(method, url, content=pieces()), 413, "payload_too_large")
        assert read <= 2 * LARGEST_CONFIG


@pytest.mark.parametrize("key", ["", "x" * 257, "a\tb"])
async def test_an_idempotency_key_that_is_none_is_refused(untouched: Served, key: str) -> None:
    reply = await untouched.client.post("/v1/configs/models", json=TINY, headers={"Idempotency-Key": key})
    check(reply, 400, "invalid_idempotency_key")


async def test_two_idempotency_keys_are_refused(untouched: Served) -> None:
    twice = [("Idempotency-Key", "a"), ("Idempotency-Key", "b")]
    reply = await untouched.client.post("/v1/configs/models", json=TINY, headers=twice)
    check(reply, 400, "invalid_idempotency_key")


async def test_unknown_routes_and_methods_are_refused_with_those_there_are(untouched: Served) -> None:
    check(await untouched.client.get("/v1/configs/surprise"), 404, "not_found")
    reply = await untouched.client.request("PATCH", "/v1/configs/models/acme/base")
    check(reply, 405, "method_not_allowed")
    assert reply.headers["allow"] == "DELETE, GET, PUT"
    check(await untouched.client.post("/v1/configs/export"), 405, "method_not_allowed")


async def test_a_page_of_another_origin_is_refused(untouched: Served) -> None:
    headers = {"Origin": "https://evil.example", "Content-Type": "text/plain"}
    reply = await untouched.client.post("/v1/configs/models", json=TINY, headers=headers)
    check(reply, 403, "forbidden")


@pytest.mark.parametrize(
    ("header", "status", "error"),
    [
        (None, 401, "unauthorized"),
        ("Bearer the-follower", 403, "forbidden"),
        ("Bearer the-client", 403, "forbidden"),
        ("Bearer guessed", 403, "forbidden"),
    ],
)
async def test_who_may_not_write_is_refused_before_the_body_is_looked_at(
    tmp_path: Path, header: str | None, status: int, error: str
) -> None:
    tokens = Tokens(*(TokenSource((each,)) for each in ("the-admin", "the-follower", "the-client")), production=False)
    headers = {} if header is None else {"Authorization": header}
    async with serving(tmp_path / "store", tokens) as served:
        for method, path in (("POST", ""), ("PUT", "/acme/tiny"), ("DELETE", "/acme/base")):
            for body in (json.dumps(TINY).encode(), b"[", b"x" * (LARGEST_CONFIG + 1)):
                reply = await served.client.request(method, f"/v1/configs/models{path}", content=body, headers=headers)
                check(reply, status, error)
        assert served.service.registry.catalog.config_epoch == 0
        reads = {path: (await served.client.get(f"/v1/configs/{path}", headers=headers)).status_code for path in READS}
        for path, read in reads.items():
            may = header in MAY_EXPORT if path == "export" else header in MAY_READ
            assert read == (200 if may else status)
        assert (await served.client.post("/v1/configs/models", json=TINY, headers=ADMIN)).status_code == 201
        assert (
            (await served.client.get("/readyz")).status_code == (await served.client.get("/metrics")).status_code == 200
        )


READS = ("models", "models/acme/base", "bundles", "bundles/gliner", "epoch", "export")
MAY_EXPORT = ("Bearer the-follower",)
MAY_READ = (*MAY_EXPORT, "Bearer the-client")


async def test_a_service_that_has_not_read_what_was_written_answers_nothing_and_says_why(tmp_path: Path) -> None:
    async with serving(tmp_path / "store", reads=False) as served:
        probe = await served.client.get("/readyz")
        assert (probe.status_code, probe.text) == (503, "the config store was not read yet")
        assert (await served.client.get("/livez")).status_code == 200
        for method, path in [("GET", each) for each in READS] + [("POST", "models"), ("POST", "resolve")]:
            reply = await served.client.request(method, f"/v1/configs/{path}", content=b"{}" * (method == "POST"))
            told = check(reply, 503, "config_store_unavailable")
            assert "not read yet" in told["message"]
            assert float(reply.headers["retry-after"]) > 0
        await asyncio.to_thread(served.service.read_on)
        assert (await served.client.get("/readyz")).text == "ok"
