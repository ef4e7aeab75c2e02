"""Models that no config names: served by their Hub id, from the command line or by the first request for them."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cache.fake_hub import FILES, files_of, run_hub
from tests.pytorch.models import write_checkpoint

BOUND_S = 60.0
BODY = {"items": [{"text": "a b"}]}
GATED = 403, {"X-Error-Code": "GatedRepo"}


def eventually(what: Callable[[], Any]) -> Any:
    end = time.monotonic() + BOUND_S
    while time.monotonic() < end:
        if found := what():
            return found
        time.sleep(0.02)
    raise TimeoutError("it never came")


def encode(url: str, model: str) -> httpx.Response:
    return httpx.post(f"{url}/v1/encode/{model}", json=BODY, timeout=BOUND_S)


def failure(url: str, model: str) -> tuple[int, str, str]:
    reply = encode(url, model)
    error = reply.json()["error"]
    return reply.status_code, error["code"], error["message"]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return files_of(write_checkpoint("bert", tmp_path_factory.mktemp("hub") / "tiny"))


def test_models_of_the_hub_by_their_ids_then_offline_from_the_cache(
    start_server: Any, checkpoint: dict[str, bytes], tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    with run_hub() as hub:
        large = {"model.safetensors": bytes(3 * 2**20)}
        hub.files = {
            "org/tiny": checkpoint,
            "org/later": checkpoint,
            "org/pickled": {name: data for name, data in FILES.items() if name != "model.safetensors"},
            "org/foreign": {**FILES, "config.json": b'{"model_type": "unheard", "architectures": ["Unheard"]}'},
            "org/large": {**FILES, **large},
            "org/gated": FILES,
        }
        hub.half = threading.Event()
        environ = {
            "SIE_HF_FALLBACK": "true",
            "HF_ENDPOINT": hub.url,
            "SIE_LOCAL_CACHE": str(cache),
            "SIE_DISK_CACHE_MAX_BYTES": str(3 * 2**20),
        }
        server = start_server(environ, ["org/tiny"], ready=False)
        progress = r"MB fetched"
        told = eventually(
            lambda: next((t for t in [httpx.get(f"{server.url}/readyz", timeout=60).text] if progress in t), None)
        )
        assert told.startswith("preload: org/tiny is being loaded: ")
        code, name, message = failure(server.url, "org/tiny")
        assert (code, name) == (503, "MODEL_LOADING")
        assert progress in message
        assert "MB" in httpx.get(f"{server.url}/v1/models/org/tiny", timeout=60).json()["notes"]["fetch"]
        server.wait_for_log("org/tiny: ")
        server.wait_for_log("are fetched from the Hub")
        hub.half.set()
        server.wait_until_ready()
        first = encode(server.url, "org/tiny")
        assert first.status_code == 200
        server.wait_for_log("org/tiny: 100 %")

        asked = len(hub.asked)
        for _ in range(2):
            code, name, message = failure(server.url, "org/missing")
            assert (code, name) == (404, "MODEL_NOT_FOUND")
            assert "there is no repository org/missing" in message
        assert len(hub.asked) == asked + 1
        hub.failures.append(GATED)
        assert "HF_TOKEN" in failure(server.url, "org/gated")[2]
        assert "pickle" in failure(server.url, "org/pickled")[2]
        code, name, message = failure(server.url, "org/foreign")
        assert (code, name) == (502, "MODEL_LOAD_FAILED")
        assert "model type unheard" in message
        assert not any("foreign/resolve" in each and "safetensors" in each for each in hub.asked)
        full = eventually(lambda: next((t for t in [failure(server.url, "org/large")] if t[0] == 502), None))
        assert "SIE_DISK_CACHE_MAX_BYTES" in full[2]
        eventually(lambda: encode(server.url, "org/later").status_code == 200)

    shutil.move(cache / "models--org--later", tmp_path / "later")
    offline = {"SIE_LOCAL_CACHE": str(cache), "HF_ENDPOINT": hub.url}
    again = start_server(offline, ["--model", "org/tiny"])
    assert encode(again.url, "org/tiny").json()["items"] == first.json()["items"]
    code, name, message = failure(again.url, "org/later")
    assert (code, name) == (404, "MODEL_NOT_FOUND")
    assert "`sie cache pull org/later`" in message
    shutil.move(tmp_path / "later", cache / "models--org--later")
    eventually(lambda: encode(again.url, "org/later").status_code == 200)


def test_a_folder_is_served_under_its_name_beside_a_model_that_the_hub_lacks(
    start_server: Any, checkpoint: dict[str, bytes], tmp_path: Path
) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    for name, data in checkpoint.items():
        (folder / name).write_bytes(data)
    with run_hub() as hub:
        environ = {"SIE_HF_FALLBACK": "true", "HF_ENDPOINT": hub.url}
        server = start_server(environ, [str(folder), "org/missing", "org/m"], ready=False)
        told = eventually(
            lambda: next((t for t in [httpx.get(f"{server.url}/readyz", timeout=60).text] if "failed" in t), None)
        )
        assert "org/missing failed: " in told
        assert "there is no repository org/missing" in told
        server.wait_for_log("loading org/m failed")
        eventually(lambda: encode(server.url, "mine").status_code == 200)
        assert server.log().count("loading org/m failed") == 1
        assert httpx.get(f"{server.url}/v1/models/mine", timeout=60).json()["loaded"]
