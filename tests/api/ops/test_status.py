"""`/ws/status`: what whoever watches a server is sent."""

import asyncio

import pytest
from prometheus_client import CollectorRegistry
from pydantic import SecretStr
from sie_cluster.programs.probes import probes
from sie_cluster.settings import ClusterSettings
from starlette.applications import Starlette
from starlette.testclient import TestClient, WebSocketDenialResponse
from starlette.websockets import WebSocketDisconnect

from sie_core.api import Browsers, create_app
from sie_core.api.ops import feed, status
from sie_core.auth import Auth
from sie_core.contracts import Device, DeviceMemory, EngineStatus, Health
from sie_core.settings import Settings

FIELDS = {
    "timestamp", "ready", "name", "machine_profile", "pool_name", "gpu_count", "bundle", "bundle_config_hash",
    "loaded_models", "max_batch_requests", "saturated", "server", "gpus", "memory", "traffic", "models",
}  # fmt: skip


@pytest.fixture
def page(app) -> TestClient:
    return TestClient(app, base_url="http://sie")


def test_the_server_is_described_again_and_again(page, backend) -> None:
    with page.websocket_connect("/ws/status") as watching:
        first, second = watching.receive_json(), watching.receive_json()
    assert first.keys() == FIELDS
    assert second["timestamp"] > first["timestamp"]
    assert first["ready"] is True
    assert first["loaded_models"] == ["org/model"]
    assert first["server"].keys() == {"version", "uptime_seconds", "user", "working_dir", "pid"}
    (model,) = first["models"]
    assert (model["name"], model["state"], model["queue_depth"]) == ("org/model", "loaded", 0)
    assert model["config"].keys() == {"hf_id", "adapter", "inputs", "outputs", "dims", "max_sequence_length"}


async def test_a_client_that_closes_its_side_while_it_is_told_ends_the_watch() -> None:
    """As uvloop and uvicorn are between the client's last bytes and the end of its connection."""
    received, sent = asyncio.Queue(), []
    received.put_nowait({"type": "websocket.connect"})

    async def send(message) -> None:
        sent.append(message["type"])
        if message["type"] == "websocket.send":
            raise RuntimeError("Cannot call write() after write_eof()")

    route = feed.feed_route("/watched", 0.01, dict, Auth(()))
    scope = {"type": "websocket", "path": "/watched", "headers": []}
    async with asyncio.timeout(60):
        await route.app(scope, received.get, send)
    assert sent == ["websocket.accept", "websocket.send"]


def test_what_changes_is_told(page, backend, gate) -> None:
    with page.websocket_connect("/ws/status") as watching:
        assert watching.receive_json()["ready"] is True
        backend.state = Health(None, "preloading org/model")
        while watching.receive_json()["ready"]:
            pass
        backend.state = Health(None, None)
        for _ in range(2):
            gate.enter()
        while not (told := watching.receive_json())["saturated"]:
            pass
        assert told["ready"] is True
        gate.close()
        while watching.receive_json()["ready"]:
            pass


def test_a_graphics_card_is_told_with_its_memory_and_its_queue(page, backend) -> None:
    device = Device("cuda", 1, "NVIDIA L4")
    backend.status = lambda: EngineStatus(device, DeviceMemory(3, 9), 0.85, queued={"org/model": 7})
    with page.websocket_connect("/ws/status") as watching:
        told = watching.receive_json()
    assert told["gpu_count"] == 1
    assert told["gpus"] == [
        {
            "device": "cuda:1",
            "name": "NVIDIA L4",
            "gpu_type": "l4",
            "utilization_pct": None,
            "memory_used_bytes": 3,
            "memory_total_bytes": 9,
            "memory_threshold_pct": 85.0,
        }
    ]
    assert (told["models"][0]["device"], told["models"][0]["queue_depth"]) == ("cuda:1", 7)


async def test_what_became_of_requests_is_told_by_stage_and_error_code(app, client, backend, page) -> None:
    body = {"items": [{"text": "a"}, {"text": "b"}]}
    assert (await client.post("/v1/encode/org/model", json=body)).status_code == 200
    refused = await client.post("/v1/encode/org/model", json={"items": "no list"})
    backend.status = lambda: EngineStatus(Device("cpu"), DeviceMemory(3, 9), 0.85)
    with page.websocket_connect("/ws/status") as watching:
        told = watching.receive_json()
    assert (told["traffic"]["answered"], told["traffic"]["items"]) == (1, 2)
    assert told["traffic"]["stage_seconds"] == {
        "tokenization": 0.002, "queue": 0.001, "inference": 0.009, "postprocessing": 0.0, "total": 0.012345,
    }  # fmt: skip
    [(code, failed)] = told["traffic"]["errors"].items()
    assert (code, failed["count"]) == ("INVALID_INPUT", 1)
    assert failed["request_id"] == refused.headers["x-sie-request-id"]
    assert told["memory"] == {"device": "cpu", "used_bytes": 3, "total_bytes": 9, "threshold_pct": 85.0}
    assert 'sie_http_errors_total{code="INVALID_INPUT"} 1.0' in (await client.get("/metrics")).text


async def test_a_watcher_that_takes_nothing_is_sent_no_more(monkeypatch) -> None:
    monkeypatch.setattr(feed, "MOST_WAIT_S", 0.05)
    received = asyncio.Queue()
    received.put_nowait({"type": "websocket.connect"})

    async def send(message) -> None:
        if message["type"] == "websocket.send":
            await asyncio.Event().wait()

    route = feed.feed_route("/watched", 0.01, dict, Auth(()))
    async with asyncio.timeout(60):
        await route.app({"type": "websocket", "path": "/watched", "headers": []}, received.get, send)


def test_a_foreign_page_may_not_watch(backend, settings) -> None:
    page = TestClient(create_app(backend, settings, browsers=Browsers(hosts=["sie"])), base_url="http://sie")
    for headers in ({"Origin": "https://evil.example"}, {"Host": "evil.example"}):
        with pytest.raises(WebSocketDisconnect), page.websocket_connect("/ws/status", headers=headers):
            pass
    with page.websocket_connect("/ws/status", headers={"Origin": "http://sie", "Host": "sie"}) as watching:
        assert watching.receive_json()["ready"] is True


def test_those_who_watch_are_bounded_and_make_room_when_they_go(page, monkeypatch) -> None:
    monkeypatch.setattr(feed, "MOST_WATCHERS", 1)
    with page:
        with page.websocket_connect("/ws/status") as first:
            first.receive_json()
            with page.websocket_connect("/ws/status") as second, pytest.raises(WebSocketDisconnect) as told:
                second.receive_json()
            assert told.value.code == 1013
        with page.websocket_connect("/ws/status") as third:
            assert third.receive_json()["ready"] is True


def test_a_worker_tells_what_it_is_called_and_what_it_serves(backend) -> None:
    settings = ClusterSettings(worker_id="w7", pool="gpu", bundle="gliner", gpu_count=4)
    share = [0.5]
    watched = status.Watched(
        settings, lambda: True, backend.models, lambda: None, lambda: share[0], "l4-spot", lambda: "a-hash"
    )
    auth = Auth(["right"])
    app = probes(lambda: None, lambda: None, CollectorRegistry(), auth, [status.status_route(watched, auth)])
    page = TestClient(app, base_url="http://sie")
    with pytest.raises(WebSocketDisconnect), page.websocket_connect("/ws/status"):
        pass
    with page.websocket_connect("/ws/status", headers={"Authorization": "Bearer right"}) as watching:
        told = watching.receive_json()
        assert told.keys() == FIELDS
        assert (told["name"], told["pool_name"], told["bundle"]) == ("w7", "gpu", "gliner")
        assert (told["bundle_config_hash"], told["machine_profile"], told["gpu_count"]) == ("a-hash", "l4-spot", 4)
        for share[0], saturated in ((0.9, True), (0.8, True), (0.69, False), (0.8, False)):
            while watching.receive_json()["saturated"] != saturated:
                pass


@pytest.mark.parametrize(
    ("settings", "detected", "profile"),
    [
        ({}, None, None),
        ({}, "l4", "l4"),
        ({"gpu_type": "H100"}, "l4", "h100"),
        ({"gpu_type": "l4", "machine_profile": "L4-Spot"}, "l4", "l4-spot"),
    ],
)
def test_a_server_is_the_machine_that_it_is_told_or_that_its_gpu_says(settings, detected, profile) -> None:
    assert status.own_profile(ClusterSettings(**settings), detected) == profile


@pytest.mark.parametrize(
    ("name", "gpu_type"),
    [
        ("NVIDIA L4", "l4"), ("Tesla T4", "t4"), ("NVIDIA A100-SXM4-80GB", "a100-80gb"), ("NVIDIA A10G", "a10g"),
        ("NVIDIA H100 80GB HBM3", "h100"), ("NVIDIA H200", "h200"), ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("NVIDIA L40S", "l40s"), ("", "cuda"),
    ],
)  # fmt: skip
def test_a_gpu_is_called_as_autoscalers_call_it(name, gpu_type) -> None:
    assert Device("cuda", name=name).gpu_type == gpu_type
    assert Device("cpu", name=name).gpu_type is None


@pytest.mark.parametrize(("given", "may"), [("cj4_Z2h0Pw", True), ("cmlnaHQ", False), ("a", False), ("", False)])
def test_a_page_gives_its_token_as_a_protocol(backend, given, may) -> None:
    settings = Settings(auth_mode="token", auth_token=SecretStr("r>?ght?"))
    page = TestClient(create_app(backend, settings), base_url="http://sie")
    asked = page.websocket_connect("/ws/status", subprotocols=["sie.status", f"sie.bearer.{given}"])
    if may:
        with asked as watching:
            assert watching.accepted_subprotocol == "sie.status"
            assert watching.receive_json()["ready"] is True
    else:
        with pytest.raises(WebSocketDenialResponse), asked:
            pass


def test_a_socket_that_nothing_guards_refuses_as_a_guarded_one_does() -> None:
    app = Starlette(routes=[feed.feed_route("/ws/status", 0.2, dict, Auth(["right"]))])
    with pytest.raises(WebSocketDenialResponse) as refused, TestClient(app).websocket_connect("/ws/status"):
        pass
    assert refused.value.status_code == 401
    assert refused.value.headers["www-authenticate"] == "Bearer"
    with TestClient(app).websocket_connect("/ws/status", headers={"Authorization": "Bearer right"}) as socket:
        assert socket.receive_json() == {}
