"""One cluster of three bundles for all tests of the folder, and who may change its configs."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from sie_bundle.bundles.reading import shipped_bundles

from tests.conftest import Server, run_cluster
from tests.gliner.library import library
from tests.pytorch.heads.bge_m3 import save_bge_m3
from tests.pytorch.models import write_checkpoint

BOUND_S = 60.0
M3, ENTITIES, FAKE = "test/m3", "test/entities", "sie-fake/dense"
HOOKED = Path(__file__).parent / "hooked"


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
        content = None if config is None else yaml.safe_dump(config)
        return self.ask(method, path, content=content)

    def ask(self, method: str, path: str, key: str | None = None, content: str | None = None) -> httpx.Response:
        """Send the config service a request."""
        service = next(line.split()[5] for line in self.server.log().splitlines() if line.startswith("Model configs"))
        token = (self.folder / "cluster/admin-token").read_text().strip()
        headers = {"Authorization": f"Bearer {token}"} | ({} if key is None else {"Idempotency-Key": key})
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


@pytest.fixture(scope="package")
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
    env = {
        "SIE_BUNDLES_DIR": str(folder / "bundles"),
        "PYTHONPATH": str(HOOKED),
        "KILLED_AFTER": str(folder / "killed-after"),
    }
    with run_cluster(folder, *arguments, env=env) as server:
        yield Running(server, folder)


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
