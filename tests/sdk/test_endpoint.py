"""Which server a client talks to and with which key."""

from __future__ import annotations

import pytest
from sie_sdk import SIEAsyncClient, SIEClient
from sie_sdk._requests.endpoint import resolve_api_key


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch):
    monkeypatch.delenv("SIE_BASE_URL", raising=False)
    monkeypatch.delenv("SIE_API_KEY", raising=False)


@pytest.mark.parametrize("client", [SIEClient, SIEAsyncClient])
def test_the_argument_wins_over_the_environment(monkeypatch, client):
    monkeypatch.setenv("SIE_BASE_URL", "http://from-env:1/")
    assert client().base_url == "http://from-env:1"
    assert client("https://given/prefix/").base_url == "https://given/prefix"


@pytest.mark.parametrize("client", [SIEClient, SIEAsyncClient])
def test_without_a_server_the_error_says_the_remedy(client):
    with pytest.raises(ValueError, match=r"pass base_url.*SIE_BASE_URL"):
        client(api_key="a key alone names no server")


@pytest.mark.parametrize("url", ["localhost:8080", "ftp://host", "http://", "/v1", "http://host:port", "http://[::1"])
def test_a_malformed_address_is_refused_by_name(url):
    with pytest.raises(ValueError, match="address"):
        SIEClient(url)


def test_an_unknown_format_is_refused():
    with pytest.raises(ValueError, match="'msgpack' and 'json'"):
        SIEClient("http://host", wire_format="xml")


@pytest.mark.parametrize(
    ("configured", "used", "key"),
    [
        ("http://host:80/a", "http://HOST/b", "from-env"),
        ("https://host", "https://host:443", "from-env"),
        ("https://host", "http://host", None),
        ("http://host", "http://host:8080", None),
        ("http://host", "http://other", None),
        (None, "http://host", None),
    ],
)
def test_the_environment_s_key_goes_to_the_environment_s_server_alone(monkeypatch, configured, used, key):
    monkeypatch.setenv("SIE_API_KEY", "from-env")
    if configured:
        monkeypatch.setenv("SIE_BASE_URL", configured)
    assert resolve_api_key(None, used) == key


def test_an_argument_is_the_key_and_an_empty_one_means_none(monkeypatch):
    monkeypatch.setenv("SIE_API_KEY", "from-env")
    monkeypatch.setenv("SIE_BASE_URL", "http://host")
    assert resolve_api_key("given", "http://anywhere") == "given"
    assert resolve_api_key("", "http://host") is None
