"""A process whose device is lost says so to its orchestrator, answers whoever asks, and still stops in order."""

import signal

import httpx


def test_a_lost_device_turns_liveness_red_and_the_process_can_still_be_stopped(start_server) -> None:
    server = start_server(args=["--preload", "sie-fake/embedder"])
    url = f"{server.url}/v1/encode/sie-fake/embedder"
    assert server.probe("/livez") == 200
    for options in ({"lost_text": "lost"}, {}):
        reply = httpx.post(url, json={"items": [{"text": "lost"}], "params": {"options": options}}, timeout=60)
        assert (reply.status_code, reply.json()["error"]["code"]) == (503, "QUEUE_UNAVAILABLE")
    said = httpx.get(f"{server.url}/livez", timeout=60)
    assert (said.status_code, said.text) == (503, "device cpu is lost, the process must be restarted")
    assert server.probe("/readyz") == 503
    assert server.probe("/healthz") == 200
    health = httpx.get(f"{server.url}/health", timeout=60).json()
    assert (health["status"], health["problems"]) == ("unhealthy", [said.text])
    server.signal(signal.SIGTERM)
    assert server.wait() == 0
