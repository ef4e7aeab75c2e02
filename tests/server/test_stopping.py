"""SIGTERM: red at once, new requests turned away, those in flight answered, and out."""

import signal
import threading
import time

import httpx
import pytest

from tests.cache.fake_hub import COMMIT, run_hub

BOUND_S = 30.0
BODY = {"items": [{"text": "in flight"}]}


def wait_for_requests_in_flight(url: str, count: int) -> None:
    end = time.monotonic() + BOUND_S
    while time.monotonic() < end:
        if httpx.get(f"{url}/health", timeout=60).json()["requests_in_flight"] == count:
            return
        time.sleep(0.01)
    raise TimeoutError(f"never {count} requests in flight")


def start(start_server, held_model, **env):
    settings = {"SIE_MODELS_DIR": str(held_model.folder), "SIE_LOG_JSON": "true", **env}
    return start_server(settings, ["--preload", held_model.id])


def test_requests_in_flight_finish_and_new_ones_are_turned_away(start_server, held_model, call) -> None:
    server = start(start_server, held_model)
    url = f"{server.url}/v1/encode/{held_model.id}"
    running = call("POST", url, json=BODY)
    wait_for_requests_in_flight(server.url, 1)
    server.signal(signal.SIGTERM)
    server.wait_for_log("SIGTERM")
    assert server.probe("/readyz") == 503
    assert server.probe("/livez") == 200
    refused = httpx.post(url, json=BODY, timeout=60)
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "QUEUE_UNAVAILABLE")
    assert int(refused.headers["retry-after"]) > 0
    assert not running.done()
    held_model.release()
    assert running.result(BOUND_S).status_code == 200
    assert server.wait() == 0


def test_an_idle_server_stops_at_once(start_server) -> None:
    server = start_server()
    with httpx.Client(base_url=server.url, timeout=60) as kept_alive:
        assert kept_alive.get("/healthz").status_code == 200
        server.signal(signal.SIGINT)
        assert server.wait() == 0


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGQUIT])
def test_a_terminal_that_closes_and_a_quit_drain_too(heard_signals, start_server, held_model, call, number) -> None:
    server = start(start_server, held_model)
    running = call("POST", f"{server.url}/v1/encode/{held_model.id}", json=BODY)
    wait_for_requests_in_flight(server.url, 1)
    server.signal(number)
    server.wait_for_log(number.name)
    server.signal(signal.SIGHUP)  # systemd may send it right behind the first; it ends nothing at once
    held_model.release()
    assert running.result(BOUND_S).status_code == 200
    assert server.wait() == 0


def test_what_takes_longer_than_the_drain_is_answered_with_a_retry(start_server, held_model, call) -> None:
    server = start(start_server, held_model, SIE_DRAIN_TIMEOUT_S="0.2")
    running = call("POST", f"{server.url}/v1/encode/{held_model.id}", json=BODY)
    wait_for_requests_in_flight(server.url, 1)
    server.signal(signal.SIGTERM)
    reply = running.result(BOUND_S)
    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "QUEUE_UNAVAILABLE")
    held_model.release()
    assert server.wait() == 0


def test_a_second_signal_ends_the_process_at_once(start_server, held_model, call) -> None:
    server = start(start_server, held_model)
    call("POST", f"{server.url}/v1/encode/{held_model.id}", json=BODY)
    wait_for_requests_in_flight(server.url, 1)
    server.signal(signal.SIGTERM)
    server.wait_for_log("SIGTERM")
    server.signal(signal.SIGTERM)
    assert server.wait() == 128 + signal.SIGTERM
    assert held_model.hold.exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_download_under_way_does_not_hold_up_the_end(start_server, tmp_path, number) -> None:
    config = (
        "{sie_id: org/m, hf_id: org/m, inputs: {text: true}, tasks: {encode: {dense: {dim: 8}}}, "
        "profiles: {default: {max_batch_tokens: 64}}}"
    )
    folder = tmp_path / "configs"
    folder.mkdir()
    (folder / "m.yaml").write_text(config)
    with run_hub() as hub:
        hub.held = threading.Event()
        server = start_server({"SIE_MODELS_DIR": str(folder), "SIE_HF_FALLBACK": "true", "HF_ENDPOINT": hub.url})
        reply = httpx.post(f"{server.url}/v1/encode/org/m", json=BODY, timeout=60)
        assert (reply.status_code, reply.json()["error"]["code"]) == (503, "MODEL_LOADING")
        end = time.monotonic() + BOUND_S
        while f"GET /org/m/resolve/{COMMIT}/model.safetensors" not in hub.asked and time.monotonic() < end:
            time.sleep(0.01)
        server.signal(number)
        assert server.wait() == 0
        assert not hub.held.is_set()
        assert server.log().rstrip().endswith("stopped")
        hub.held.set()


def test_a_hangup_reads_the_log_settings_again_where_a_file_has_them(heard_signals, start_server, tmp_path) -> None:
    file = tmp_path / "log.env"
    file.write_text("SIE_LOG_LEVEL=warning\n")
    variables = {"SIE_LOG_SETTINGS": str(file), "SIE_ACCESS_LOG": "all", "SIE_PLUGINS": "fake"}
    server = start_server(variables, ["--preload", "sie-fake/embedder"])
    path = "/v1/encode/sie-fake/embedder"

    def ask() -> None:
        httpx.post(server.url + path, json=BODY, timeout=60).raise_for_status()

    ask()
    assert path not in server.log()
    file.write_text("# while we look\nSIE_LOG_LEVEL=DEBUG\n\nSIE_ACCESS_LOG = all\n")
    server.signal(signal.SIGHUP)
    server.wait_for_log("SIGHUP: SIE_LOG_LEVEL=DEBUG, SIE_ACCESS_LOG=all")
    ask()
    server.wait_for_log(f"POST {path} 200")
    file.write_text("SIE_LOG_LEVEL=LOUD\n")
    server.signal(signal.SIGHUP)
    server.wait_for_log("stay as they are: SIE_LOG_LEVEL='LOUD'")
    server.signal()
    assert server.wait() == 0
