"""`/ws/status`: what whoever watches a server is sent."""

import pytest
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from sie_core.api import Browsers, create_app
from sie_core.api.ops import status
from sie_core.contracts import Device, DeviceMemory, EngineStatus, Health

FIELDS = {
    "timestamp", "ready", "name", "machine_profile", "pool_name", "gpu_count", "bundle", "bundle_config_hash",
    "loaded_models", "max_batch_requests", "saturated", "server", "gpus", "models",
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


def test_a_foreign_page_may_not_watch(backend, settings) -> None:
    page = TestClient(create_app(backend, settings, browsers=Browsers(hosts=["sie"])), base_url="http://sie")
    for headers in ({"Origin": "https://evil.example"}, {"Host": "evil.example"}):
        with pytest.raises(WebSocketDisconnect), page.websocket_connect("/ws/status", headers=headers):
            pass
    with page.websocket_connect("/ws/status", headers={"Origin": "http://sie", "Host": "sie"}) as watching:
        assert watching.receive_json()["ready"] is True


def test_those_who_watch_are_bounded_and_make_room_when_they_go(page, monkeypatch) -> None:
    monkeypatch.setattr(status, "MOST_WATCHERS", 1)
    with page:
        with page.websocket_connect("/ws/status") as first:
            first.receive_json()
            with page.websocket_connect("/ws/status") as second, pytest.raises(WebSocketDisconnect) as told:
                second.receive_json()
            assert told.value.code == 1013
        with page.websocket_connect("/ws/status") as third:
            assert third.receive_json()["ready"] is True
