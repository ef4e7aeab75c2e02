import httpx
import pytest

from sie_core.contracts import Health


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
async def test_a_well_server_says_ok(client: httpx.AsyncClient, path) -> None:
    reply = await client.get(path)
    assert (reply.status_code, reply.text) == (200, "ok")


async def test_each_probe_tells_its_own_problem(client: httpx.AsyncClient, backend) -> None:
    backend.state = Health("the device thread is dead", "preloading org/model")
    assert (await client.get("/healthz")).status_code == 200
    live, ready = await client.get("/livez"), await client.get("/readyz")
    assert (live.status_code, live.text) == (503, "the device thread is dead")
    assert (ready.status_code, ready.text) == (503, "preloading org/model")


@pytest.mark.parametrize(
    ("state", "status"),
    [(Health(None, None), "healthy"), (Health(None, "loading"), "degraded"), (Health("dead", "dead"), "unhealthy")],
)
async def test_health_sums_up(client: httpx.AsyncClient, backend, state, status) -> None:
    backend.state = state
    body = (await client.get("/health")).json()
    assert (body["status"], body["type"]) == (status, "standalone")
    assert body["problems"] == list({problem for problem in (state.live_problem, state.ready_problem) if problem})
    assert body["models"] == [{"name": "org/model", "state": "loaded", "worker_count": 1, "gpu_types": []}]


@pytest.mark.parametrize(
    "path", ["/healthz", "/livez", "/readyz", "/health", "/metrics", "/ping", "/tei/org/model/health"]
)
async def test_probes_answer_head_as_get_without_a_body(client: httpx.AsyncClient, path) -> None:
    head = await client.head(path)
    assert head.status_code == 200
    assert head.headers["content-type"] == (await client.get(path)).headers["content-type"]


async def test_a_probe_that_is_red_is_red_for_head_too(client: httpx.AsyncClient, backend) -> None:
    backend.state = Health("dead", "dead")
    assert [(await client.head(path)).status_code for path in ("/healthz", "/livez", "/readyz")] == [200, 503, 503]
