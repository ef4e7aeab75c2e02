"""The page's install lines render what they promise; its tables and queries are those of the chart."""

from __future__ import annotations

import re
import shlex
from base64 import b64decode
from pathlib import Path

import pytest
import yaml

from tests.helm.engine import CHART, ROOT, Document, Helm, one
from tests.helm.matrix import KEDA, merged

PAGE = (ROOT / "docs/operate/kubernetes.md").read_text(encoding="utf-8")
QUERIES = (ROOT / "docs/operate/cluster/autoscaling.md").read_text(encoding="utf-8")
LINES = re.findall(r"^helm install .*$", PAGE, re.MULTILINE)
SNIPPETS = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
CHARTS = {"helm/sie-cluster", "oci://ghcr.io/acme/charts/sie-cluster"}


def install(helm: Helm, line: str) -> list[Document]:
    """Render what a line of a shell installs."""
    words = shlex.split(line.replace("$HF_TOKEN", "hf_of_mine"))
    name, chart, *options = words[2:]
    assert chart in CHARTS
    sets: list[str] = []
    files: list[Path] = []
    namespace = "default"
    while options:
        option = options.pop(0)
        if option == "--create-namespace":
            continue
        value = options.pop(0)
        if option == "--set":
            sets.append(value)
        elif option == "-f":
            files.append(ROOT / value)
        else:
            assert option == "--namespace", option
            namespace = value
    return helm.render(name=name, namespace=namespace, sets=sets, files=files)


def line_with(text: str) -> str:
    (line,) = (each for each in LINES if text in each)
    return line


@pytest.mark.parametrize("line", LINES)
def test_every_line_installs_a_whole_cluster(line: str, helm: Helm) -> None:
    found = install(helm, line)
    assert one(found, "Deployment", "sie-gateway")
    assert one(found, "Deployment", "sie-config")
    assert any(each["kind"] == "StatefulSet" and "-worker-" in each["metadata"]["name"] for each in found)


def test_the_first_line_installs_what_the_page_counts(helm: Helm) -> None:
    found = install(helm, LINES[0])
    replicas = {
        each["metadata"]["name"]: each["spec"]["replicas"]
        for each in found
        if each["kind"] in ("Deployment", "StatefulSet")
    }
    assert replicas == {"sie-gateway": 2, "sie-config": 2, "sie-nats": 1, "sie-worker-cpu-default": 1}
    images = {each["image"] for each in _containers(found)}
    assert images == {
        "ghcr.io/acme/sie-gateway:1.0.0",
        "ghcr.io/acme/sie-server:1.0.0-cpu-default",
        "docker.io/library/nats:2.12",
    }


def _containers(found: list[Document]) -> list[Document]:
    pods = [each["spec"]["template"]["spec"] for each in found if "template" in each.get("spec", {})]
    return [container for pod in pods for container in pod["containers"]]


def test_the_token_of_the_hub_is_a_secret_that_the_adapter_process_alone_has(helm: Helm) -> None:
    found = install(helm, line_with("hfToken.create=true"))
    secret = one(found, "Secret", "sie-hf-token")
    assert b64decode(secret["data"]["token"]) == b"hf_of_mine"
    wanted = {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "sie-hf-token", "key": "token"}}}
    assert {each["name"] for each in _containers(found) if wanted in each["env"]} == {"worker"}


@pytest.mark.parametrize(
    ("file", "label", "storage"),
    [
        ("values-gke.yaml", {"cloud.google.com/gke-accelerator": "nvidia-l4"}, "premium-rwo"),
        ("values-aws.yaml", {"karpenter.k8s.aws/instance-gpu-name": "l4"}, "gp3"),
    ],
)
def test_the_clouds_nodes_disks_and_balancers_are_named(
    file: str, label: dict[str, str], storage: str, helm: Helm
) -> None:
    found = install(helm, next(each for each in LINES if file in each and "ingress" in each))
    pod = one(found, "StatefulSet", "sie-worker-l4-default")["spec"]["template"]["spec"]
    assert label.items() <= pod["nodeSelector"].items()
    assert pod["containers"][0]["image"].endswith("sie-server:1.0.0-cuda-default")
    assert pod["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == 1
    (claim,) = one(found, "StatefulSet", "sie-nats")["spec"]["volumeClaimTemplates"]
    assert claim["spec"]["storageClassName"] == storage
    rule = one(found, "Ingress", "sie-gateway")["spec"]["rules"][0]
    assert rule["host"] == "sie.example.com"


def test_a_cloud_names_nodes_of_every_profile_with_a_gpu() -> None:
    profiles = yaml.safe_load((CHART / "values.yaml").read_text())["machineProfiles"]
    for name in ("gke", "aws"):
        named = yaml.safe_load((CHART / f"values-{name}.yaml").read_text())["machineProfiles"]
        assert set(named) == set(profiles) - {"cpu"}, name


def test_three_brokers_and_tokens(helm: Helm) -> None:
    found = install(helm, line_with("nats.replicas=3"))
    settings = one(found, "ConfigMap", "sie-settings")["data"]
    assert settings["SIE_NATS_REPLICAS"] == "3"
    assert settings["SIE_NATS_URL"].count("nats://") == 3
    assert "auth-token" in one(found, "Secret", "sie-secrets")["data"]


def test_keda_asks_what_the_page_of_autoscaling_says(helm: Helm) -> None:
    found = install(helm, line_with("autoscaling.enabled=true"))
    spec = one(found, "ScaledObject", "sie-worker-l4-default")["spec"]
    (documented,) = (yaml.safe_load(each)["triggers"] for each in re.findall(r"```yaml\n(.*?)```", QUERIES, re.DOTALL))
    asked = [each["metadata"] for each in spec["triggers"]]
    assert [each["metadata"]["query"] for each in documented] == [each["query"] for each in asked]
    assert [each["metadata"]["threshold"] for each in documented] == [each["threshold"] for each in asked]
    assert {each["ignoreNullValues"] for each in asked} == {"false"}
    assert {each["activationThreshold"] for each in asked} == {"0"}
    assert {each["serverAddress"] for each in asked} == {"http://prometheus-operated.monitoring:9090"}
    assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (0, 8)
    assert spec["fallback"] == {"failureThreshold": 3, "replicas": 1, "behavior": "currentReplicasIfHigher"}


def test_matchers_are_added_to_every_query(helm: Helm) -> None:
    found = helm.render(merged(KEDA, {"autoscaling": {"prometheus": {"matchers": {"namespace": "search"}}}}))
    spec = one(found, "ScaledObject", "sie-worker-cpu-default")["spec"]
    wanted = '{machine_profile="cpu", bundle="default", namespace="search"})'
    assert all(each["metadata"]["query"].endswith(wanted) for each in spec["triggers"])


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_values_of_the_page_are_taken(snippet: str, helm: Helm) -> None:
    assert helm.render(yaml.safe_load(snippet))


def test_the_page_tells_every_key_of_the_secret(helm: Helm) -> None:
    data = one(helm.render({"auth": {"mode": "token", "tokens": ["0123456789abcdef"]}}), "Secret", "sie-secrets")[
        "data"
    ]
    rows = PAGE.partition("## Secrets")[2].partition("##")[0]
    assert set(data) == set(re.findall(r"`([a-z-]+-(?:tokens?|password))`", rows))


def test_every_value_that_the_page_names_exists() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    tops = "|".join(values)
    for path in re.findall(rf"`((?:{tops})(?:\.\w+)+)(?:=\S+)?`", PAGE):
        at = values
        for key in path.replace("pools.NAME", "pools.cpu").split("."):
            if key in ("queuePool", "settings") and "pools" in path:
                break
            assert key in at, path
            at = at[key]
