"""What the chart gives to Prometheus and Grafana: the rules and dashboards of helm/observability, and own alerts."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.helm.engine import ROOT, Helm, one
from tests.helm.matrix import KEDA, merged

SOURCES = "\n".join(file.read_text() for file in (ROOT / "plugins/sie-cluster/sie_cluster").rglob("*.py"))
OBSERVABILITY = ROOT / "helm/observability"
RUNBOOKS = (ROOT / "docs/operate/observe/runbooks.md").read_text()
ALERTS = {"alertRules": {"enabled": True, "labels": {"team": "search"}}}


@pytest.fixture(scope="module")
def groups(helm: Helm) -> list[dict[str, Any]]:
    rule = one(helm.render(ALERTS), "PrometheusRule", "sie")
    assert rule["metadata"]["labels"]["team"] == "search"
    read: list[dict[str, Any]] = rule["spec"]["groups"]
    return read


def test_every_metric_of_an_alert_is_one_of_a_program(groups: list[dict[str, Any]]) -> None:
    (rules,) = (group["rules"] for group in groups if group["name"] == "sie")
    assert len(rules) == 7
    for rule in rules:
        names = re.findall(r"sie_\w+", rule["expr"])
        assert names != []
        for name in names:
            plain = name.removesuffix("_total")
            assert re.search(rf'"(?:{plain}|{plain.removeprefix("sie_gateway_")})"', SOURCES), name
        assert "{{ $labels" in rule["annotations"]["summary"] or "by (namespace)" in rule["expr"]
        assert rule["annotations"]["runbook"] == f"docs/operate/observe/runbooks.md#{rule['alert'].lower()}"
        assert f"\n## {rule['alert']}\n" in RUNBOOKS


def test_the_rules_of_every_server_are_there_as_they_are(groups: list[dict[str, Any]]) -> None:
    ours = yaml.safe_load((OBSERVABILITY / "rules.yaml").read_text())["groups"]
    assert groups[:-1] == ours


def test_no_worker_is_no_fault_where_keda_ends_them(helm: Helm, groups: list[dict[str, Any]]) -> None:
    scaled = one(helm.render(merged(ALERTS, KEDA)), "PrometheusRule", "sie")["spec"]["groups"]
    left_out = names(groups) - names(scaled)
    assert (left_out, names(scaled) - names(groups)) == ({"SieNoWorkers"}, set())


def names(groups: list[dict[str, Any]]) -> set[str]:
    return {rule.get("alert", rule.get("record")) for group in groups for rule in group["rules"]}


def test_a_job_is_one_cluster_and_one_that_the_rules_are_of(helm: Helm, groups: list[dict[str, Any]]) -> None:
    found = helm.render({"serviceMonitor": {"enabled": True}}, name="vectors", namespace="search")
    jobs = {
        rule["replacement"]
        for each in found
        if each["kind"] == "ServiceMonitor"
        for endpoint in each["spec"]["endpoints"]
        for rule in endpoint["relabelings"]
    }
    (down,) = (rule for group in groups for rule in group["rules"] if rule.get("alert") == "SieDown")
    (wanted,) = re.findall(r'job=~"([^"]*)"', down["expr"])
    assert jobs == {"sie-cluster/search/vectors"}
    assert re.fullmatch(wanted, *jobs)


def test_each_dashboard_is_in_a_config_map_of_its_own(helm: Helm) -> None:
    found = helm.render({"dashboards": {"enabled": True}})
    held = [each for each in found if each["metadata"].get("labels", {}).get("grafana_dashboard") == "1"]
    dashboards = {name: json.loads(text) for each in held for name, text in each["data"].items()}
    files = sorted((OBSERVABILITY / "dashboards").glob("*.json"))
    assert dashboards == {f"sie-{file.name}": json.loads(file.read_text()) for file in files}
    assert len(held) == len(files) >= 4


def test_prometheus_reads_the_rules(groups: list[dict[str, Any]], tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("there is no `promtool` on the PATH")
    number = sum(len(group["rules"]) for group in groups)
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": groups}))
    checked = subprocess.run([promtool, "check", "rules", tmp_path / "rules.yaml"], capture_output=True, text=True)
    assert (checked.returncode, f"{number} rules found" in checked.stdout) == (0, True), checked.stderr
