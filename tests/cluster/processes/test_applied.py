"""`sie config apply` of two hundred configs to a cluster that serves meanwhile."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import httpx
import pytest
import yaml
from click.testing import CliRunner, Result
from sie_sdk import SIEClient

from sie_core.cli import main
from tests.conftest import run_cluster
from tests.soak.faults.cluster import below

MODEL = "sie-fake/embedder"
NUMBER, BOUND_S = 200, 60.0
TOKENS = {"SIE_ADMIN_TOKEN": "the-admin", "SIE_CONFIG_READ_TOKEN": "the-follower"}
pytestmark = pytest.mark.timeout(300)


def write(folder: Path, number: int) -> str:
    """Write a config; return the model's id."""
    model_id = f"acme/fake-{number:03}"
    tasks = {"encode": {"dense": {"dim": 8}}}
    profiles = {"default": {"adapter_path": "fake"}}
    content = {"sie_id": model_id, "package_backed": True, "tasks": tasks, "profiles": profiles}
    (folder / f"{number}.yaml").write_text(yaml.safe_dump(content))
    return model_id


def encode(url: str, model: str) -> int:
    body = {"items": [{"text": "x"}]}
    return httpx.post(f"{url}/v1/encode/{model}", json=body, timeout=BOUND_S).status_code


def wait_until_served(url: str, models: list[str]) -> None:
    """Wait until every worker has every model."""
    left, end = list(models), time.monotonic() + BOUND_S
    with httpx.Client(base_url=url, timeout=BOUND_S) as client:
        while left:
            told = client.get(f"/v1/configs/models/{left[-1]}/status").json()
            if told.get("all_bundles_acked"):
                left.pop()
            else:
                assert time.monotonic() < end, told
                time.sleep(0.05)


def test_two_hundred_configs_are_served_soon_after_apply_and_a_second_run_writes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "configs"
    folder.mkdir()
    models = [write(folder, number) for number in range(NUMBER)]
    with run_cluster(tmp_path, "--preload", MODEL, env=TOKENS) as server:
        service = server.wait_for_log(r"changed at (http://[^/]+)/")[1]
        statuses, stop = list[int](), threading.Event()

        def load() -> None:
            while not stop.is_set():
                statuses.append(encode(server.url, MODEL))

        def apply(*options: str) -> Result:
            env = {**TOKENS, "SIE_CONFIG_SERVICE_URL": service, "SIE_GATEWAY_URL": server.url}
            return CliRunner().invoke(main, ["config", "apply", str(folder), *options], env=env)

        asking = threading.Thread(target=load)
        asking.start()
        try:
            applied, returned = apply("--wait", "0"), time.monotonic()
            wait_until_served(server.url, models)
            print(f"{NUMBER} configs are served {time.monotonic() - returned:.2f} s after apply returned.")
            with SIEClient(server.url) as client:  # which waits for their load
                served = [client.encode(each, {"text": "x"}) for each in (models[0], models[-1])]
        finally:
            stop.set()
            asking.join(BOUND_S)
        assert (applied.exit_code, applied.stdout.splitlines()[-1]) == (0, f"create {NUMBER}"), applied.stderr
        assert ([each["model"] for each in served], set(statuses)) == ([models[0], models[-1]], {200})
        sidecar = next(each for each in below(server) if "sidecar" in each.cmdline())
        models.append(write(folder, NUMBER))
        sidecar.suspend()
        try:
            lagging = apply("--wait", "1s")
            assert (lagging.exit_code, "worker-1 does not have" in lagging.stderr) == (2, True), lagging.stderr
        finally:
            sidecar.resume()
        again = json.loads(apply("--json").stdout)
        assert {each["action"] for each in again["models"]} == {"same"}
        assert (again["written"], again["lagging"]) == (True, {})
        assert httpx.get(f"{server.url}/v1/configs/epoch", timeout=BOUND_S).json()["epoch"] == NUMBER + 1
