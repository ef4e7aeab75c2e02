"""The chart in a registry of container images: pushed, and pulled as it was."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import yaml

from sie_core import __version__
from sie_core.serving.listening import reserve
from tests.helm.engine import Helm
from tests.soak.faults.cluster import until

REGISTRY = shutil.which("docker-registry")
pytestmark = pytest.mark.skipif(REGISTRY is None, reason="there is no `docker-registry` on the PATH")


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[str]:
    """The address of a registry that runs."""
    with reserve("127.0.0.1", 0) as (url, port), (tmp_path / "registry.log").open("wb") as log:
        config = {
            "version": 0.1,
            "storage": {"filesystem": {"rootdirectory": str(tmp_path / "stored")}},
            "http": {"addr": f"127.0.0.1:{port}"},
        }
        (tmp_path / "registry.yml").write_text(yaml.safe_dump(config))
        process = subprocess.Popen([str(REGISTRY), "serve", tmp_path / "registry.yml"], stdout=log, stderr=log)
        try:
            until(lambda: answers(f"{url}/v2/"), "the registry answers")
            yield f"127.0.0.1:{port}"
        finally:
            process.kill()
            process.wait()


def answers(url: str) -> bool:
    try:
        return httpx.get(url).status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


def digest(registry: str) -> str:
    """The digest of the chart of this version."""
    manifest = httpx.head(
        f"http://{registry}/v2/charts/sie-cluster/manifests/{__version__}",
        headers={"Accept": "application/vnd.oci.image.manifest.v1+json"},
    )
    return manifest.raise_for_status().headers["Docker-Content-Digest"]


def test_the_chart_comes_back_from_a_registry_as_it_was(helm: Helm, registry: str, tmp_path: Path) -> None:
    archive, pulled = helm.package(tmp_path), tmp_path / "pulled"
    pulled.mkdir()
    helm.push(archive, f"oci://{registry}/charts")
    first = digest(registry)
    helm.push(archive, f"oci://{registry}/charts")
    assert digest(registry) == first, "the same bytes have the same digest"
    helm.pull(f"oci://{registry}/charts", __version__, pulled)
    (back,) = pulled.iterdir()
    assert (back.name, back.read_bytes()) == (f"sie-cluster-{__version__}.tgz", archive.read_bytes())
    listed = httpx.get(f"http://{registry}/v2/charts/sie-cluster/tags/list").json()
    assert listed["tags"] == [__version__]
