"""Which server a client talks to and with which key."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sie_sdk import SIEAsyncClient, SIEClient, SIEConnectionError
from sie_sdk._calls.exchange import TransportFailure
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


MALFORMED = ["localhost:8080", "ftp://host", "http://", "/v1", "http://host:port", "http://[::1", "http://host\n"]


@pytest.mark.parametrize("url", MALFORMED)
def test_a_malformed_address_is_refused_by_name(url):
    with pytest.raises(ValueError, match="address"):
        SIEClient(url)


SECRET = "zanzibar"
SPOILT = [SECRET + "\n", "\t" + SECRET, SECRET + "é", SECRET[:4] + "\n" + SECRET[4:], SECRET + "\0"]


def refused(kind: type[Exception], call: Callable[[], object]) -> str:
    """What an error tells, which comes from no other that may tell more."""
    with pytest.raises(kind) as raised:
        call()
    assert SECRET[:4] not in str(raised.value)
    assert raised.value.__context__ is None
    return str(raised.value)


@pytest.mark.parametrize("value", SPOILT)
def test_what_no_header_can_carry_is_refused_by_its_name_and_never_shown(monkeypatch, value):
    url = "http://127.0.0.1:9"
    for client in (SIEClient, SIEAsyncClient):
        assert refused(ValueError, lambda client=client: client(url, api_key=value)).startswith("api_key ")
        assert refused(ValueError, lambda client=client: client(url, gpu=value)).startswith("gpu ")
    monkeypatch.setenv("SIE_BASE_URL", url)
    monkeypatch.setenv("SIE_API_KEY", value.replace("\0", "\x01"))
    assert refused(ValueError, SIEClient).startswith("SIE_API_KEY ")
    monkeypatch.delenv("SIE_API_KEY")
    with SIEClient() as client:
        for name in ("gpu", "priority"):
            for call in (client.encode, client.encode_many, client.extract):
                asked = lambda call=call, name=name: call("m", ["x"] * 3, **{name: value})  # noqa: E731
                assert refused(ValueError, asked).startswith(f"{name} ")
            assert refused(ValueError, lambda n=name: client.score("m", "q", ["x"], **{n: value})).startswith(
                f"{name} "
            )
        assert refused(ValueError, lambda: client.tokenize("m", "x", gpu=value)).startswith("gpu ")


def test_a_key_that_is_no_string_is_refused_by_its_type():
    assert refused(TypeError, lambda: SIEClient("http://host", api_key=SECRET.encode())).startswith(
        "api_key is a bytes"
    )


@pytest.mark.parametrize("mark", ["", "/", "?", "#", "@", "//", "\n"])
def test_the_password_of_an_address_is_in_no_message_and_no_log(rehearsal, caplog, mark):
    rehearsal.url = f"http://me:1{mark}{SECRET}@127.0.0.1:9"
    with pytest.raises(SIEConnectionError) as raised:
        rehearsal.play(
            rehearsal.protocol().encode("org/m@2", "x", {}), [TransportFailure("unsent", OSError("refused"))]
        )
    assert "no answer from http://…@127.0.0.1:9" in str(raised.value)
    assert "http://…@127.0.0.1:9/v1/encode/org/m@2 again" in caplog.text
    assert SECRET not in str(raised.value) + caplog.text
    for password in (f"{SECRET}{mark}1", f"1{mark}{SECRET}"):
        assert "ftp://…@host" in refused(ValueError, lambda it=password: SIEClient(f"ftp://me:{it}@host"))


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
