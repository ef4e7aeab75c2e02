"""`sie migrate helm-values`: no key of a values file is dropped without a word, and what comes out renders."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from sie_core.cli import main
from tests.helm.engine import CHART, Helm

PUBLISHED = """
global: {imageRegistry: ghcr.io/acme}
imagePullSecrets: [{name: pull}]
gateway:
  replicaCount: 3
  image: {repository: ghcr.io/acme/gateway, tag: 1.2.3}
  env: [{name: SIE_LOG_LEVEL, value: INFO}]
ingress: {enabled: true, ingressClassName: nginx, hosts: [{host: sie.example.com, paths: [/]}]}
hfToken: {create: true, value: hf_x}
auth: {enabled: true}
serviceMonitor: {enabled: true, additionalLabels: {release: prometheus}}
dashboards: {enabled: true}
payloadStore: {enabled: true, url: s3://bucket/payloads}
config: {configStore: {url: s3://bucket/configs}}
workers:
  common:
    bundle: default
    preloadModels: [BAAI/bge-m3]
    cacheStorageSize: 80Gi
    clusterCache: {url: s3://bucket/hub}
    workerSidecar: {enabled: true, batcher: {coalesceMs: 3, maxBatchRequests: 9}}
  pools:
    l4: {enabled: true, machineProfile: l4, bundles: [default], minReplicas: 0, maxReplicas: 3, gpu: 1}
machineProfiles: {l4: {gpu: 1}}
"""
UNKNOWN = """
gatway: {replicas: 3}
gateway: {replicas: 2, replicaCount: 3, replicsa: 1}
ingress: {hosts: [{host: one.example.com}, {host: two.example.com}]}
workers: {pools: {l4: {gpu: {count: 1}}}, common: {env: [{name: A, valueFrom: {}}]}}
"""


def migrated(tmp_path: Path, text: str, *args: object) -> Result:
    file = tmp_path / "values.yaml"
    file.write_text(text)
    chart = () if "--chart" in args else ("--chart", str(CHART))
    return CliRunner().invoke(main, ["migrate", "helm-values", str(file), *chart, *map(str, args)])


def leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Every path that ends in something else than a map with keys."""
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


@pytest.mark.parametrize("text", [PUBLISHED, UNKNOWN])
def test_every_leaf_is_told(tmp_path: Path, text: str) -> None:
    keys = json.loads(migrated(tmp_path, text, "--json").stdout)["keys"]
    told = [each["path"] for each in keys]
    for leaf in leaves(yaml.safe_load(text)):
        assert [path for path in told if leaf == path or leaf.startswith(f"{path}.")] != [], leaf
    assert all(each["note"] for each in keys if each["state"] == "unknown")


def test_what_comes_out_renders(helm: Helm, tmp_path: Path) -> None:
    result = migrated(tmp_path, PUBLISHED)
    assert result.exit_code == 0, result.stderr
    (tmp_path / "new.yaml").write_text(result.stdout)
    found = {(each["kind"], each["metadata"]["name"]): each for each in helm.render(files=[tmp_path / "new.yaml"])}
    gateway = found["Deployment", "sie-gateway"]["spec"]
    assert gateway["replicas"] == 3
    assert gateway["template"]["spec"]["containers"][0]["image"] == "ghcr.io/acme/gateway:1.2.3"
    assert gateway["template"]["spec"]["imagePullSecrets"] == [{"name": "pull"}]
    assert found["Ingress", "sie-gateway"]["spec"]["rules"][0]["host"] == "sie.example.com"
    assert found["ServiceMonitor", "sie-gateway"]["metadata"]["labels"]["release"] == "prometheus"


def test_what_is_renamed_without_effect_or_unknown_is_told_with_the_nearest_key(tmp_path: Path) -> None:
    told = migrated(tmp_path, PUBLISHED).stderr.splitlines()
    assert "renamed  gateway.replicaCount -> gateway.replicas" in told
    assert "renamed  auth.enabled -> auth.mode" in told
    assert "renamed  ingress.hosts -> ingress.host: its paths are left out: all go to the gateway" in told
    assert next(line for line in told if "coalesceMs" in line).endswith(
        "it has no effect: a sidecar sends slices on at once"
    )
    result = migrated(tmp_path, UNKNOWN)
    assert (result.exit_code, yaml.safe_load(result.stdout)) == (1, {"gateway": {"replicas": 2}})
    assert result.stderr.splitlines() == [
        "unknown  gatway: there is no such key here. Did you mean gateway?",
        "unknown  gateway.replicaCount: gateway.replicas states it too",
        "unknown  gateway.replicsa: there is no such key in gateway. Did you mean replicas?",
        "unknown  ingress.hosts: there is no such key in ingress. Did you mean host?",
        "unknown  workers.pools.l4.gpu: here it is of type integer",
        "unknown  workers.common.env: there is no such key in workers.common.",
        "1 taken, 0 renamed, 6 unknown",
    ]


@pytest.mark.parametrize("file", ["values.yaml", *(each.name for each in CHART.glob("values-*.yaml"))])
def test_a_file_of_this_chart_is_taken_as_it_is_from_a_package_too(tmp_path: Path, file: str) -> None:
    package = tmp_path / "sie-cluster-1.0.0.tgz"
    with tarfile.open(package, "w:gz") as archive:
        archive.add(CHART, "sie-cluster")
    text = (CHART / file).read_text()
    result = migrated(tmp_path, text, "--chart", package)
    assert (result.exit_code, yaml.safe_load(result.stdout)) == (0, yaml.safe_load(text)), result.stderr
    assert " 0 unknown" in result.stderr


@pytest.mark.parametrize(
    ("text", "told"),
    [("a: [", "not valid YAML"), ("- a", "a values file is a map, not list"), ("a: 1\na: 2", "given twice")],
)
def test_what_is_no_values_file_is_refused(tmp_path: Path, text: str, told: str) -> None:
    result = migrated(tmp_path, text)
    assert (result.exit_code, told in result.stderr) == (1, True)
    (tmp_path / "chart").mkdir()
    result = migrated(tmp_path, "{}", "--chart", tmp_path / "chart")
    assert (result.exit_code, "Name one by --chart" in result.stderr) == (1, True)
