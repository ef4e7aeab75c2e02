import threading

import httpx
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from sie_core.api import create_app
from sie_core.settings import Settings
from tests.api.conftest import TellTaleBackend

BODY = {"items": [{"text": "x"}]}


async def samples(client: httpx.AsyncClient) -> dict[tuple[str, ...], float]:
    text = (await client.get("/metrics", headers={"Accept": "text/plain"})).text
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_requests_are_counted_by_route_and_status(client: httpx.AsyncClient) -> None:
    for body in (BODY, BODY, {"items": []}):
        await client.post("/v1/encode/org/model", json=body)
    counted = await samples(client)
    route = "/v1/encode/{model:path}"
    assert counted["sie_http_requests_total", "POST", route, "200"] == 2
    assert counted["sie_http_requests_total", "POST", route, "400"] == 1
    assert counted["sie_http_request_seconds_count", route] == 3


async def test_paths_and_methods_of_clients_make_no_series(client: httpx.AsyncClient) -> None:
    for number in range(5):
        await client.get(f"/nothing/{number}")
        await client.request(f"VERB{number}", f"/nothing/{number}")
    counted = await samples(client)
    assert counted["sie_http_requests_total", "GET", "unmatched", "404"] == 5
    assert counted["sie_http_requests_total", "OTHER", "unmatched", "404"] == 5


async def test_a_scraper_may_ask_for_openmetrics(client: httpx.AsyncClient) -> None:
    reply = await client.get("/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    assert reply.headers["content-type"].startswith("application/openmetrics-text")
    assert reply.text.endswith("# EOF\n")


async def test_metrics_are_written_beside_the_loop() -> None:
    """Half a megabyte of them takes long enough to be felt by those who wait for an answer."""
    threads = []

    class Slow:
        def collect(self):
            threads.append(threading.current_thread())
            return iter(())

    registry = CollectorRegistry()
    registry.register(Slow())
    threads.clear()
    app = create_app(TellTaleBackend(), Settings(), registry=registry)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://sie") as client:
        assert (await client.get("/metrics")).status_code == 200
    assert threads
    assert threading.current_thread() not in threads
