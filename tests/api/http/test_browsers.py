"""What a web page may do, by the headers that its browser sends."""

import httpx
import pytest

from sie_core.api import Browsers, allowed_hosts, create_app
from sie_core.settings import Settings, SettingsError, load_settings

APP = "https://app.example.com"
PREFLIGHT = {
    "Origin": APP,
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "content-type,x-sie-timeout-ms",
}
BODY = {"items": [{"text": "abc"}]}


@pytest.fixture
def reach(backend, settings):
    """Call a server that goes by `hosts` and lets pages of `origins` call; `host` is what the client calls it."""

    async def call(method: str, path: str, *, origins=(), hosts=("*",), host="sie", **arguments) -> httpx.Response:
        app = create_app(backend, settings, browsers=Browsers(origins, hosts))
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url=f"http://{host}") as client:
            return await client.request(method, path, **arguments)

    return call


async def test_a_page_from_elsewhere_is_refused_on_every_route(reach, backend) -> None:
    for method, path in [
        ("POST", "/v1/encode/org/model"),
        ("GET", "/v1/models"),
        ("GET", "/health"),
        ("POST", "/embed"),
    ]:
        for origin in (APP, "null", "http://sie.example.com", "http://sie:81"):
            reply = await reach(method, path, headers={"Origin": origin}, json=BODY)
            assert reply.status_code == 403, (path, origin)
            assert "access-control-allow-origin" not in reply.headers
            assert "Origin" in reply.text
            assert "SIE_CORS_ORIGINS" in reply.text
    assert backend.requests == []


async def test_the_error_of_a_refused_page_is_typed(reach) -> None:
    reply = await reach("POST", "/v1/encode/org/model", headers={"Origin": APP}, json=BODY)
    assert (reply.json()["error"]["code"], reply.json()["error"]["param"]) == ("FORBIDDEN", "Origin")


@pytest.mark.parametrize("origin", ["http://sie:8080", "HTTP://SIE:8080", None])
async def test_its_own_page_and_clients_that_are_no_browsers_may_call(reach, origin) -> None:
    headers = {} if origin is None else {"Origin": origin}
    reply = await reach("POST", "/v1/encode/org/model", host="sie:8080", headers=headers, json=BODY)
    assert reply.status_code == 200


async def test_its_own_page_may_come_through_a_proxy_that_speaks_tls(reach) -> None:
    headers = {"Origin": "https://sie.example.com", "Host": "sie.example.com"}
    assert (await reach("GET", "/v1/models", headers=headers)).status_code == 200


async def test_a_page_that_may_call_reads_the_reply_and_its_errors(reach) -> None:
    for path, status in [("/v1/encode/org/model", 200), ("/v1/nothing", 404)]:
        reply = await reach("POST", path, origins=[APP], headers={"Origin": APP}, json=BODY)
        assert reply.status_code == status
        assert reply.headers["access-control-allow-origin"] == APP
        assert reply.headers["access-control-expose-headers"] == "*"
        assert reply.headers["vary"] == "Origin"


async def test_a_reply_to_one_page_is_not_kept_for_another(reach) -> None:
    reply = await reach("GET", "/v1/models", origins=[APP])
    assert reply.headers["vary"] == "Origin"
    assert "access-control-allow-origin" not in reply.headers


@pytest.mark.parametrize("path", ["/v1/encode/org/model", "/v1/embeddings", "/embed", "/v1/models", "/readyz"])
async def test_a_preflight_is_answered_where_the_page_may_call(reach, gate, path) -> None:
    reply = await reach("OPTIONS", path, origins=[APP], headers=PREFLIGHT)
    assert reply.status_code == 204
    assert reply.headers["access-control-allow-origin"] == APP
    assert "POST" in reply.headers["access-control-allow-methods"]
    assert reply.headers["access-control-allow-headers"] == "content-type,x-sie-timeout-ms"
    assert int(reply.headers["access-control-max-age"]) > 0


async def test_a_preflight_of_any_other_page_is_refused(reach) -> None:
    for origins in ([], ["https://other.example.com"]):
        reply = await reach("OPTIONS", "/v1/encode/org/model", origins=origins, headers=PREFLIGHT)
        assert reply.status_code == 403
        assert "access-control-allow-origin" not in reply.headers


async def test_a_page_on_the_internet_may_ask_for_a_machine_in_the_network(reach) -> None:
    headers = PREFLIGHT | {"Access-Control-Request-Private-Network": "true"}
    reply = await reach("OPTIONS", "/v1/models", origins=["*"], headers=headers)
    assert reply.headers["access-control-allow-private-network"] == "true"
    assert reply.headers["access-control-allow-origin"] == "*"


async def test_a_preflight_takes_no_place_among_the_requests_in_flight(backend, settings, gate) -> None:
    app = create_app(backend, settings, gate=gate, browsers=Browsers([APP]))
    for _ in range(settings.max_concurrent_requests):
        gate.enter()
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://sie") as client:
        assert (await client.options("/v1/encode/org/model", headers=PREFLIGHT)).status_code == 204


async def test_options_that_are_no_preflight_are_refused_as_ever(reach) -> None:
    assert (await reach("OPTIONS", "/v1/models", origins=[APP])).status_code == 405


LOCAL = ("localhost", "127.0.0.1", "127.0.0.1:8080", "localhost:9", "LocalHost", "localhost.", "a.localhost",
         "[::1]:80", "192.0.2.7", "0.0.0.0:8080", "host.docker.internal:8080")  # fmt: skip
FOREIGN = ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example:8080", "evillocalhost", "sie", "1.2.3.4.5")


@pytest.mark.parametrize("host", LOCAL)
async def test_a_server_on_loopback_goes_by_addresses_and_loopback_names(reach, host) -> None:
    hosts = allowed_hosts(Settings(), "127.0.0.1")
    assert (await reach("GET", "/v1/models", hosts=hosts, headers={"Host": host})).status_code == 200


@pytest.mark.parametrize("host", FOREIGN)
async def test_a_name_that_was_made_to_point_here_is_refused(reach, host) -> None:
    hosts = allowed_hosts(Settings(), "127.0.0.1")
    for path in ("/v1/models", "/metrics", "/readyz"):
        reply = await reach("GET", path, hosts=hosts, headers={"Host": host})
        assert reply.status_code == 403
        assert reply.json()["error"]["param"] == "Host"
        assert "SIE_ALLOWED_HOSTS" in reply.json()["error"]["message"]


async def test_a_request_that_names_no_host_comes_from_no_browser(reach) -> None:
    reply = await reach("GET", "/v1/models", hosts=allowed_hosts(Settings(), "::1"), headers={"Host": ""})
    assert reply.status_code == 200


@pytest.mark.parametrize(
    ("arguments", "address", "host", "status"),
    [
        ({}, "0.0.0.0", "sie.default.svc.cluster.local:8080", 200),
        ({}, "::", "box.lan", 200),
        ({}, "10.0.0.5", "box.example.com", 200),
        ({"http_host": "sie-box"}, "127.0.1.1", "SIE-Box:8080", 200),
        ({"allowed_hosts": "sie.example.com"}, "127.0.0.1", "sie.example.com", 200),
        ({"allowed_hosts": "sie.example.com"}, "127.0.0.1", "localhost:1", 200),
        ({"allowed_hosts": "sie.example.com"}, "0.0.0.0", "other.example.com", 403),
        ({"allowed_hosts": "sie.example.com"}, "0.0.0.0", "10.0.0.5:8080", 200),
        ({"allowed_hosts": "*.example.com"}, "127.0.0.1", "a.b.example.com", 200),
        ({"allowed_hosts": "*.example.com"}, "127.0.0.1", "example.com", 403),
        ({"allowed_hosts": "*.example.com"}, "127.0.0.1", "badexample.com", 403),
        ({"allowed_hosts": "*"}, "127.0.0.1", "evil.example", 200),
    ],
)
async def test_the_names_follow_from_the_address_and_the_setting(reach, arguments, address, host, status) -> None:
    hosts = allowed_hosts(Settings(**arguments), address)
    assert (await reach("GET", "/v1/models", hosts=hosts, headers={"Host": host})).status_code == status


@pytest.mark.parametrize(
    "wrong",
    [{"cors_origins": "app.example.com"}, {"cors_origins": "https://a.example/path"}, {"cors_origins": "null"},
     {"allowed_hosts": "https://sie.example.com"}, {"allowed_hosts": "sie.example.com:8080"},
     {"allowed_hosts": "a,*b"}],
)  # fmt: skip
def test_what_is_no_origin_or_no_name_stops_the_start(wrong) -> None:
    with pytest.raises(SettingsError, match="is not of the form"):
        load_settings(**wrong)
