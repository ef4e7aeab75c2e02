"""Three bundles with workers of their own behind one gateway, and configs that change while it answers."""

from __future__ import annotations

import shutil
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from sie_sdk import SIEClient

from sie_core.catalog.bundles.reading import shipped_bundles
from tests.conftest import Server, run_cluster
from tests.gliner.library import library
from tests.pytorch.heads.bge_m3 import save_bge_m3
from tests.pytorch.models import write_checkpoint
from tests.soak.faults.cluster import below, role_of, until

BOUND_S = 60.0
M3, ENTITIES, FAKE = "test/m3", "test/entities", "sie-fake/dense"
pytestmark = pytest.mark.timeout(300)


@dataclass
class Running:
    """A cluster, and who may change its configs."""

    server: Server
    folder: Path
    client: httpx.Client = field(default_factory=lambda: httpx.Client(timeout=BOUND_S))

    @property
    def url(self) -> str:
        return self.server.url

    def write(self, method: str, path: str, config: object = None) -> httpx.Response:
        """Change a config."""
        service = next(line.split()[5] for line in self.server.log().splitlines() if line.startswith("Model configs"))
        token = (self.folder / "cluster/admin-token").read_text().strip()
        headers = {"Authorization": f"Bearer {token}"}
        content = None if config is None else yaml.safe_dump(config)
        return self.client.request(method, service.rstrip(";") + path, content=content, headers=headers)

    def bundles(self) -> dict[str, dict[str, Any]]:
        """What the gateway says of bundles."""
        told = self.client.get(f"{self.url}/v1/configs/bundles").json()["bundles"]
        return {each["bundle_id"]: each for each in told}

    def loaded(self) -> dict[str, set[str]]:
        """Which models the workers of each bundle have loaded."""
        workers = self.client.get(f"{self.url}/health").json()["workers"]
        return {each["bundle"]: set(each["loaded_models"]) for each in workers}

    def acked(self, model: str) -> set[str]:
        """The workers that have a model as the config service says it is, all of its bundle; none before that."""
        reply = self.client.get(f"{self.url}/v1/configs/models/{model}/status")
        told = reply.json() if reply.status_code == 200 else {"all_bundles_acked": False}
        return (
            {name for each in told["bundles"] for name in each["acked_workers"]} if told["all_bundles_acked"] else set()
        )

    def dims(self, model: str) -> int | str:
        """The size of the vectors that a model answers, or the code of its error."""
        body, headers = {"items": [{"text": "a text"}]}, {"Prefer": "wait=30"}
        reply = self.client.post(f"{self.url}/v1/encode/{model}", json=body, headers=headers)
        if reply.status_code != 200:
            return str(reply.json()["error"]["code"])
        return len(reply.json()["items"][0]["dense"]["values"])


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("three")
    write_checkpoint("xlm-roberta", folder / "bases/xlm-roberta")
    save_bge_m3(folder / "bases/xlm-roberta", folder / "models" / M3)
    shutil.copytree(library().write(folder / "written", "span", "bert"), folder / "models" / ENTITIES)
    for name in ("default", "gliner"):
        shutil.copytree(shipped_bundles() / name, folder / "bundles" / name)
    (folder / "bundles/fake").mkdir()
    (folder / "bundles/fake/bundle.yaml").write_text("{priority: 120, plugins: [fake]}")
    arguments = ("--bundles", "default,gliner,fake")
    with run_cluster(folder, *arguments, env={"SIE_BUNDLES_DIR": str(folder / "bundles")}) as server:
        yield Running(server, folder)


def test_each_model_is_served_by_the_workers_of_its_bundle(running: Running) -> None:
    with SIEClient(running.url) as client:
        several = client.encode(M3, {"text": "a text"}, output_types=["dense", "sparse", "multivector"])
        assert {"dense", "sparse", "multivector"} <= several.keys()
        assert client.extract(ENTITIES, {"text": "Ada met Bob."}, labels=["person"])["model"] == ENTITIES
        assert client.encode(FAKE, {"text": "a text"})["dense"].shape == (8,)
    expected = {"default": {M3}, "gliner": {ENTITIES}, "fake": {FAKE}}
    until(lambda: running.loaded() == expected, "every model at its bundle's worker")


def test_a_request_may_name_its_bundle_and_one_that_does_not_serve_it_is_refused(running: Running) -> None:
    assert running.dims(f"fake:/{FAKE}") == 8
    assert running.dims(f"gliner:/{FAKE}") == "BUNDLE_CONFLICT"


def test_a_model_of_no_bundle_is_refused_at_the_write(running: Running) -> None:
    reply = running.write(
        "POST", "/models", {"sie_id": "test/nobody", "hf_id": "test/nobody", "profiles": {"default": {}}}
    )
    assert reply.status_code == 422
    lacks = [each["message"].partition(":")[0] for each in reply.json()["error"]["details"]]
    assert lacks == ["gliner", "default", "fake"]
    assert running.dims("test/nobody") == "MODEL_NOT_FOUND"


def test_a_model_is_added_changed_and_removed_under_load_and_no_other_request_sees_it(running: Running) -> None:
    assert running.dims(FAKE) == 8
    ended, seen = threading.Event(), set()

    def load() -> None:
        with httpx.Client(timeout=BOUND_S) as client:
            while not ended.is_set():
                reply = client.post(f"{running.url}/v1/encode/{FAKE}", json={"items": [{"text": "load"}] * 40})
                seen.add((reply.status_code, len(reply.content) > 0 and len(reply.json().get("items", ()))))

    threads = [threading.Thread(target=load) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        assert running.write("POST", "/models", fake(8)).status_code == 201
        until(lambda: running.dims("test/new") == 8, "it is served")
        until(lambda: len(running.acked("test/new")) == 1, "the worker has it")
        assert running.write("POST", "/models", fake(8) | {"profiles": profiles("default", "other")}).status_code == 201
        until(lambda: running.dims("test/new:other") == 8, "the profile is served")
        assert running.write("PUT", "/models/test/new", fake(4)).status_code == 200
        until(lambda: running.dims("test/new") == 4, "the changed one is served")
        assert running.write("DELETE", "/models/test/new").status_code == 200
        until(lambda: running.dims("test/new") == "MODEL_NOT_FOUND", "it is removed")
    finally:
        ended.set()
        for thread in threads:
            thread.join(BOUND_S)
    assert seen == {(200, 40)}


def test_a_bundle_that_is_added_reaches_the_gateway(running: Running) -> None:
    assert set(running.bundles()) == {"default", "gliner", "fake"}
    (running.folder / "bundles/more").mkdir()
    (running.folder / "bundles/more/bundle.yaml").write_text("{priority: 10, plugins: [fake]}")
    next(each for each in below(running.server) if role_of(each) == "config").send_signal(signal.SIGKILL)
    until(lambda: "more" in running.bundles(), "the bundle is told")
    # Nobody works for it here: a request for its models waits for a worker, and the other bundle still serves them.
    assert running.dims(f"fake:/{FAKE}") == 8


def fake(dim: int) -> dict[str, Any]:
    """A model of sie-fake."""
    return {
        "sie_id": "test/new",
        "package_backed": True,
        "tasks": {"encode": {"dense": {"dim": dim}}},
        "profiles": profiles("default"),
    }


def profiles(*names: str) -> dict[str, Any]:
    return {name: {"adapter_path": "fake"} for name in names}
