"""What arrives over a socket: ids in paths, bodies beyond the bound, tokens; and what the log keeps to itself."""

from __future__ import annotations

import json
import socket
from urllib.parse import urlsplit

import httpx
import pytest
import yaml

from sie_core.catalog.configs.reading import LARGEST_CONFIG
from tests.config_service.program.conftest import ADMIN, TOKENS
from tests.conftest import Server

CONFIG = {
    "sie_id": "acme/encoder",
    "hf_id": "acme/encoder",
    "weights": {"model_type": "bert", "architectures": ["BertModel"]},
    "profiles": {"default": {}, "q": {"extends": "default"}},
}
"""Served by a bundle that ships."""
MODELS = "/v1/configs/models"


def raw(server: Server, head: str, headers: str, body: bytes = b"") -> tuple[int, str]:
    """Send a request as it is written, and no more; return the status and the error of its answer."""
    address = urlsplit(server.url)
    with socket.create_connection((str(address.hostname), int(address.port or 0)), 20) as connection:
        connection.sendall(f"{head} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n\r\n".encode() + body)
        reply = connection.makefile("rb")
        status = int(reply.readline().split()[1])
        fields = dict(line.lower().split(b": ", 1) for line in iter(reply.readline, b"\r\n"))
        return status, json.loads(reply.read(int(fields[b"content-length"])))["error"]["error"]


def epoch(server: Server) -> int:
    told: int = httpx.get(f"{server.url}/v1/configs/epoch", headers=ADMIN, timeout=60).json()["epoch"]
    return told


def test_an_id_may_hold_slashes_and_colons_escaped_or_not(server: Server) -> None:
    with httpx.Client(base_url=server.url, headers=ADMIN, timeout=60) as client:
        assert client.put(f"{MODELS}/acme%2Fencoder", json=CONFIG).status_code == 200
        for path in ("acme/encoder", "acme%2Fencoder", "acme%2fencoder%3Adefault"):
            assert yaml.safe_load(client.get(f"{MODELS}/{path}").text) == CONFIG
        assert yaml.safe_load(client.get(f"{MODELS}/acme/encoder:q").text)["variant_of"] == "acme/encoder"
        assert client.delete(f"{MODELS}/acme/encoder").json()["deleted"] is True


@pytest.mark.parametrize(
    "path", ["../x", "acme/../../x", "%2e%2e/%2e%2e/lease", "acme%5C..%5Cx", "acme%00", "%ff", "a%0Ab"]
)
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_a_path_that_leads_elsewhere_is_refused(server: Server, method: str, path: str) -> None:
    before = epoch(server)
    status, error = raw(server, f"{method} {MODELS}/{path}", "Authorization: the-admin\r\nContent-Length: 2", b"{}")
    assert (status, error) in {(400, "invalid_model_id"), (404, "not_found")}
    assert epoch(server) == before


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        (f"Content-Length: {LARGEST_CONFIG + 1}", b""),
        ("Content-Length: 99999999999999", b""),
        ("Transfer-Encoding: chunked", f"{LARGEST_CONFIG + 1:x}\r\n".encode() + b" " * (LARGEST_CONFIG + 1)),
    ],
)
def test_a_body_beyond_the_bound_is_refused_before_its_end(server: Server, headers: str, body: bytes) -> None:
    status, error = raw(server, f"POST {MODELS}", f"Authorization: the-admin\r\n{headers}", body)
    assert (status, error) == (413, "payload_too_large")


def test_who_may_not_write_is_refused_before_the_body_is_sent(server: Server) -> None:
    before = epoch(server)
    for header, expected in (
        ("X-None: x", (401, "unauthorized")),
        ("Authorization: Bearer the-follower", (403, "forbidden")),
        ("Authorization: the-admin\r\nAuthorization: the-admin", (403, "forbidden")),
    ):
        for head in (f"POST {MODELS}", f"PUT {MODELS}/a/b", f"DELETE {MODELS}/a/b"):
            assert raw(server, head, f"{header}\r\nContent-Length: 10") == expected
    assert epoch(server) == before


def test_a_page_that_a_foreign_name_or_origin_serves_may_not_call(server: Server) -> None:
    before = epoch(server)
    for foreign in ({"Host": "evil.example"}, {"Origin": "https://evil.example"}):
        for path in ("epoch", "models"):
            reply = httpx.get(f"{server.url}/v1/configs/{path}", headers={**ADMIN, **foreign}, timeout=60)
            assert (reply.status_code, reply.json()["error"]["error"]) == (403, "forbidden")
        assert (
            httpx.post(f"{server.url}{MODELS}", json=CONFIG, headers={**ADMIN, **foreign}, timeout=60).status_code
            == 403
        )
    assert epoch(server) == before


def test_metrics_and_probes_need_no_token_and_tell_of_the_service(server: Server) -> None:
    assert (
        httpx.get(f"{server.url}/readyz", timeout=60).text == httpx.get(f"{server.url}/livez", timeout=60).text == "ok"
    )
    told = httpx.get(f"{server.url}/metrics", timeout=60).text
    assert f"sie_config_epoch {float(epoch(server))}" in told
    assert f"sie_config_backup_epoch {float(epoch(server))}" in told
    assert "sie_config_models{" in told
    assert "sie_http_requests_total{" in told


def test_neither_log_nor_metrics_hold_a_token(server: Server) -> None:
    httpx.get(f"{server.url}/v1/configs/export", headers={"Authorization": "Bearer the-client"}, timeout=60)
    told = server.log() + httpx.get(f"{server.url}/metrics", timeout=60).text
    assert [token for token in TOKENS.values() if token in told] == []
