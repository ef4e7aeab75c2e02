"""A client is its token, else its address, however many connections it opens and whatever it writes."""

from __future__ import annotations

import tracemalloc

import httpx
import pytest
from starlette.datastructures import Headers

from sie_core.api import create_app
from sie_core.callers import Callers
from sie_core.settings import Settings
from tests.api.conftest import TellTaleBackend

PROXIES = ("10.0.0.0/8", "fd00::/8")


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("203.0.113.7", None, "address 203.0.113.7"),
        ("203.0.113.7", "198.51.100.1", "address 203.0.113.7"),
        ("10.1.2.3", "198.51.100.1", "address 198.51.100.1"),
        ("10.1.2.3", "1.1.1.1, 198.51.100.1", "address 198.51.100.1"),
        ("10.1.2.3", "1.1.1.1, 198.51.100.1, 10.9.9.9", "address 198.51.100.1"),
        ("10.1.2.3", "10.4.4.4", "address 10.4.4.4"),
        ("10.1.2.3", "nonsense, 10.4.4.4", "address 10.4.4.4"),
        ("10.1.2.3", "<script>", "address 10.1.2.3"),
        ("10.1.2.3", "", "address 10.1.2.3"),
        ("10.1.2.3", "198.51.100.1:4711", "address 198.51.100.1"),
        ("fd00::1", "[2001:db8:1:2:3::4]:443", "address 2001:db8:1:2::/64"),
        ("2001:db8:1:2:aaaa::1", None, "address 2001:db8:1:2::/64"),
        ("2001:db8:1:2:bbbb::1", None, "address 2001:db8:1:2::/64"),
        ("::ffff:203.0.113.7", None, "address 203.0.113.7"),
        ("fe80::1%eth0", None, "address fe80::/64"),
        (None, "198.51.100.1", "address unknown"),
    ],
)
def test_a_client_is_the_last_address_that_no_trusted_proxy_has(peer, forwarded, client) -> None:
    headers = {} if forwarded is None else {"x-forwarded-for": forwarded}
    assert Callers(PROXIES).client(peer, Headers(headers)) == client


def test_headers_of_any_length_leave_nothing_behind() -> None:
    callers = Callers(PROXIES)
    tracemalloc.start()
    try:
        for number in range(200):
            for peer in ("203.0.113.7", "10.1.2.3"):
                callers.client(peer, Headers({"x-forwarded-for": f"{number}{'x' * 60_000}"}))
        assert tracemalloc.get_traced_memory()[0] < 1_000_000
    finally:
        tracemalloc.stop()


def test_without_proxies_the_header_is_anybody_s() -> None:
    headers = Headers({"x-forwarded-for": "198.51.100.1", "authorization": "Bearer made-up"})
    assert Callers().client("10.1.2.3", headers) == "address 10.1.2.3"


def test_where_tokens_are_wanted_a_client_is_its_token_and_the_token_is_not_told() -> None:
    callers = Callers(by_token=True)
    names = [callers.client("10.1.2.3", Headers({"authorization": f"Bearer {each}"})) for each in ("one", "two", "one")]
    assert names[0] == names[2] != names[1]
    assert all("one" not in name and "two" not in name for name in names)
    assert callers.client("10.9.9.9", Headers({"authorization": "one"})) == names[0]


async def test_every_request_carries_its_client() -> None:
    backend = TellTaleBackend()
    app = create_app(backend, Settings(trusted_proxies=("10.0.0.0/8",)))
    for peer in ("10.0.0.1", "192.0.2.1"):
        transport = httpx.ASGITransport(app, client=(peer, 4711))
        headers = {"X-Forwarded-For": "198.51.100.1"}
        async with httpx.AsyncClient(transport=transport, base_url="http://sie", headers=headers) as client:
            body = {"model": "org/model", "input": "four"}
            assert (await client.post("/v1/embeddings", json=body)).status_code == 200
            assert (await client.post("/v1/encode/org/model", json={"items": [{"text": "a"}]})).status_code == 200
    told = [request.client for request in backend.requests]
    assert told == ["address 198.51.100.1"] * 2 + ["address 192.0.2.1"] * 2


def test_a_network_that_is_none_is_refused_at_the_start() -> None:
    with pytest.raises(ValueError, match=r"'10\.0\.0\.1/8' is no network"):
        Settings(trusted_proxies=("10.0.0.1/8",))


async def test_a_key_in_azure_s_header_is_a_client_of_its_own() -> None:
    backend = TellTaleBackend()
    app = create_app(backend, Settings(auth_mode="token", auth_tokens=("one", "two")))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://sie") as client:
        for headers in ({"api-key": "one"}, {"api-key": "two"}, {"authorization": "Bearer one"}):
            path = "/openai/v1/embeddings"
            reply = await client.post(path, json={"model": "org/model", "input": "four"}, headers=headers)
            assert reply.status_code == 200
    first, second, again = [request.client for request in backend.requests]
    assert first == again != second
