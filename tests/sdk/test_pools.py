"""Leases are renewed in the background."""

from __future__ import annotations

import threading

import pytest
from sie_sdk import PoolError, SIEClient
from sie_sdk._calls.cluster import pools
from sie_sdk._calls.exchange import Response, TransportFailure

from tests.sdk.conftest import Rehearsal

FINE, GONE, FAILED = (Response(status, {}, b"{}") for status in (200, 404, 500))
LOST = TransportFailure("interrupted", OSError("lost"))


def test_a_lease_is_renewed_every_minute_until_the_pool_is_gone(rehearsal: Rehearsal) -> None:
    rehearsal.play(rehearsal.protocol(api_key="k").pools.renewals("mine"), [FINE, FINE, GONE])
    assert rehearsal.sleeps == [60, 60, 60]
    assert {(send.method, send.url) for send in rehearsal.sends} == {("POST", "http://server/v1/pools/mine/renew")}
    assert rehearsal.sends[0].headers["Authorization"] == "Bearer k"


def test_a_renewal_is_tried_five_times_and_again_a_minute_later(rehearsal: Rehearsal) -> None:
    outcomes = [FAILED, LOST, FAILED, LOST, FAILED, FAILED, FINE, GONE]
    rehearsal.play(rehearsal.protocol().pools.renewals("mine"), outcomes)
    assert rehearsal.sleeps == [60, 1, 2, 4, 8, 60, 1, 60]


def test_a_client_renews_until_it_is_closed(server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "RENEW_S", 0.01)
    server.script = [(201, {}, b"{}"), *[(200, {}, b"{}")] * 10_000]
    with SIEClient(server.url) as client:
        client.create_pool("mine")
        assert all(server.taken.acquire(timeout=30) for _ in range(4))
    assert {path for _, path, _, _ in server.requests[1:]} == {"/v1/pools/mine/renew"}
    assert not [each for each in threading.enumerate() if each.name == "sie-lease-mine"]


def test_what_is_refused_names_the_pool(server) -> None:
    server.script = [(400, {}, b'{"error": {"code": "INVALID_INPUT", "message": "no such profile"}}')]
    with SIEClient(server.url) as client, pytest.raises(PoolError, match="no such profile") as refused:
        client.create_pool("mine", {"h100": 1})
    assert refused.value.pool_name == "mine"
