"""The chart by Helm's own engine: it lints, Kubernetes takes it, names fit, and equal values give equal bytes."""

from __future__ import annotations

import json
import os
import re
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import yaml

from sie_core import __version__
from tests.helm.engine import CHART, Document, Helm, containers, documents, one, pods
from tests.helm.matrix import KEDA, every_choice, merged
from tests.helm.rendered.crds import CUSTOM

pytestmark = pytest.mark.timeout(300)
VERSIONS = ("1.29", "1.30", "1.31", "1.32", "1.33", "1.34")
MOST_NAME, MOST_SET = 63, 52
"""Of a StatefulSet's name Kubernetes makes a label, with a hash of eleven characters."""


def distinct(rendered: dict[str, list[Document]]) -> list[Document]:
    texts = {json.dumps(each, sort_keys=True) for each in chain.from_iterable(rendered.values())}
    return [json.loads(text) for text in sorted(texts)]


def test_the_chart_has_the_version_of_the_project() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)


def test_it_lints_strictly(helm: Helm) -> None:
    found = helm.lint({})
    assert not found["errors"]
    assert [each["error"] for each in found["messages"]] == ["icon is recommended"]


def test_the_matrix_is_at_least_forty_values() -> None:
    assert len(list(every_choice())) >= 40


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_of_kubernetes_takes_every_manifest(
    version: str, helm: Helm, rendered: dict[str, list[Document]]
) -> None:
    builtin = [each for each in distinct(rendered) if each["kind"] not in CUSTOM]
    assert helm.faults(version, builtin) == []


def test_a_misspelt_field_is_a_fault(helm: Helm) -> None:
    deployment = one(helm.render(), "Deployment", "sie-gateway")
    deployment["spec"]["template"]["spec"]["containers"][0]["livenesProbe"] = {}
    assert "livenesProbe" in " ".join(helm.faults("1.34", [deployment]))


@pytest.mark.parametrize("kind", CUSTOM)
def test_keda_and_the_prometheus_operator_take_theirs(
    kind: str, helm: Helm, rendered: dict[str, list[Document]]
) -> None:
    ours = [each for each in distinct(rendered) if each["kind"] == kind]
    assert ours
    assert helm.custom_faults(CUSTOM[kind], ours) == []
    ours[0]["spec"]["surprise"] = 1
    assert "surprise" in " ".join(helm.custom_faults(CUSTOM[kind], ours))


def test_custom_resources_are_rendered_where_they_are_asked_for_alone(helm: Helm) -> None:
    assert not {each["kind"] for each in helm.render()} & set(CUSTOM)


def test_names_fit_and_no_two_are_equal(rendered: dict[str, list[Document]]) -> None:
    for given, found in rendered.items():
        names = [(each["kind"], each["metadata"]["name"]) for each in found]
        assert len(set(names)) == len(names), given
        for kind, name in names:
            assert len(name) <= (MOST_SET if kind == "StatefulSet" else MOST_NAME), name
        for each in found:
            for value in _labels(each):
                assert len(value) <= MOST_NAME, value


def _labels(document: Document) -> list[str]:
    template = document.get("spec", {}).get("template", {})
    return [*document["metadata"].get("labels", {}).values(), *template.get("metadata", {}).get("labels", {}).values()]


def test_every_reference_has_its_object(rendered: dict[str, list[Document]]) -> None:
    mine = {"mine", "bucket", "hub", "weights", "sie-weights", "tls", "pull"}
    for given, found in rendered.items():
        there = {(each["kind"], each["metadata"]["name"]) for each in found} | {
            (kind, name) for kind in ("Secret", "PersistentVolumeClaim") for name in mine
        }
        for where, pod in pods(found):
            for kind, name in _named(pod):
                assert (kind, name) in there, (given, where, kind, name)
            if pod["serviceAccountName"] != "default":
                assert ("ServiceAccount", pod["serviceAccountName"]) in there
        for each in found:
            if each["kind"] == "StatefulSet":
                assert ("Service", each["spec"]["serviceName"]) in there


def _named(pod: Document) -> list[tuple[str, str]]:
    found = []
    for volume in pod.get("volumes", ()):
        if "secret" in volume:
            found.append(("Secret", volume["secret"]["secretName"]))
        if "configMap" in volume:
            found.append(("ConfigMap", volume["configMap"]["name"]))
        if "persistentVolumeClaim" in volume:
            found.append(("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]))
    for container in pod["containers"]:
        for source in container.get("envFrom", ()):
            found += [("ConfigMap", of["name"]) for key, of in source.items() if key == "configMapRef"]
            found += [("Secret", of["name"]) for key, of in source.items() if key == "secretRef"]
        for each in container.get("env", ()):
            of = each.get("valueFrom", {}).get("secretKeyRef")
            found += [("Secret", of["name"])] if of else []
    return found


def test_every_secret_key_that_a_pod_reads_is_in_the_secret(rendered: dict[str, list[Document]]) -> None:
    for found in rendered.values():
        keys = {each["metadata"]["name"]: set(each["data"]) for each in found if each["kind"] == "Secret"}
        for _, pod in pods(found):
            for volume in pod.get("volumes", ()):
                if volume.get("secret", {}).get("secretName") in keys:
                    wanted = {item["key"] for item in volume["secret"]["items"]}
                    assert wanted <= keys[volume["secret"]["secretName"]]
            for container in pod["containers"]:
                for each in container.get("env", ()):
                    of = each.get("valueFrom", {}).get("secretKeyRef")
                    assert of is None or of["name"] not in keys or of["key"] in keys[of["name"]]


def test_every_mount_has_its_volume_and_every_volume_a_mount(rendered: dict[str, list[Document]]) -> None:
    for found in rendered.values():
        for each in found:
            if "template" not in each.get("spec", {}):
                continue
            pod = each["spec"]["template"]["spec"]
            claims = {claim["metadata"]["name"] for claim in each["spec"].get("volumeClaimTemplates", ())}
            volumes = {volume["name"] for volume in pod.get("volumes", ())} | claims
            mounts = {mount["name"] for of in pod["containers"] for mount in of.get("volumeMounts", ())}
            assert mounts == volumes, each["metadata"]["name"]


def test_equal_values_give_equal_bytes_but_for_what_is_generated(helm: Helm) -> None:
    everything = merged(KEDA, {"serviceMonitor": {"enabled": True}, "secrets": {"existingSecret": "mine"}})
    assert helm.texts(everything) == helm.texts(everything)
    one_time, other = helm.texts(), helm.texts()
    assert {path for path in one_time if one_time[path] != other[path]} == {"sie-cluster/templates/shared/secrets.yaml"}


def test_a_changed_setting_restarts_what_reads_it_and_nothing_else(helm: Helm) -> None:
    def templates(values: dict[str, Any]) -> dict[str, Any]:
        return {
            each["metadata"]["name"]: each["spec"]["template"]
            for each in helm.render(values)
            if "template" in each.get("spec", {})
        }

    def changed(values: dict[str, Any]) -> set[str]:
        before, after = templates({}), templates(values)
        return {name for name in before if before[name] != after[name]}

    ours = {"sie-gateway", "sie-config", "sie-worker-cpu-default"}
    assert changed({"log": {"level": "DEBUG"}}) == ours
    assert changed({"gateway": {"settings": {"SIE_GATEWAY_TIMEOUT_S": "60"}}}) == {"sie-gateway"}
    assert changed({"config": {"replicas": 3}, "gateway": {"replicas": 3}}) == set()
    assert changed({"workers": {"pools": {"cpu": {"queuePool": "slow"}}}}) == {"sie-worker-cpu-default", "sie-nats"}
    assert changed({"nats": {"resources": {"limits": {"memory": "4Gi"}}}}) == {"sie-nats"}


def test_what_is_scaled_by_others_has_no_number_of_its_own(helm: Helm) -> None:
    found = helm.render(merged(KEDA, {"gateway": {"autoscaling": {"enabled": True}}}))
    assert "replicas" not in one(found, "Deployment", "sie-gateway")["spec"]
    assert "replicas" not in one(found, "StatefulSet", "sie-worker-cpu-default")["spec"]


def test_probes_and_ports_of_a_container_agree(rendered: dict[str, list[Document]]) -> None:
    for found in rendered.values():
        for where, container in containers(found):
            ports = {port["name"] for port in container.get("ports", ())}
            numbers = {port["containerPort"] for port in container.get("ports", ())}
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                if "DaemonSet" in where:
                    continue
                if "exec" in container[probe]:
                    asked = re.findall(r"127\.0\.0\.1:(\d+)", " ".join(container[probe]["exec"]["command"]))
                    assert set(map(int, asked)) == numbers, where
                else:
                    assert container[probe]["httpGet"]["port"] in ports, where


def test_the_archive_holds_the_chart_and_nothing_else(helm: Helm, tmp_path: Path) -> None:
    import tarfile

    archive = helm.package(tmp_path)
    assert archive.name == f"sie-cluster-{__version__}.tgz"
    with tarfile.open(archive) as read:
        held = {name.removeprefix("sie-cluster/") for name in read.getnames()}
    assert {"Chart.yaml", "values.yaml", "values.schema.json", "files/broker-access.json", "values-gke.yaml"} <= held
    followed = (Path(folder) / name for folder, _, names in os.walk(CHART, followlinks=True) for name in names)
    assert held == {f"{each.relative_to(CHART)}" for each in followed if each.suffix not in (".py", ".pyc")}


def test_notes_say_what_is_there(helm: Helm) -> None:
    notes = helm.texts(merged(KEDA, {"auth": {"mode": "token"}}))["sie-cluster/templates/NOTES.txt"]
    assert "sie-worker-cpu-default: the bundle default on cpu, 1 to 4, by KEDA" in notes
    assert "ScaledObject" in notes
    assert ".data.auth-token" in notes
    assert documents({"NOTES.txt": notes}) == []
