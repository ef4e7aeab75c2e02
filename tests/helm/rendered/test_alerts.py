"""The chart's alerts: each asks for metrics that programs have, and Prometheus' own tool reads them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.helm.engine import Helm, one

ROOT = Path(__file__).parents[3]
SOURCES = "\n".join(file.read_text() for file in (ROOT / "plugins/sie-cluster/sie_cluster").rglob("*.py"))


@pytest.fixture(scope="module")
def groups(helm: Helm) -> list[dict[str, Any]]:
    found = helm.render({"alertRules": {"enabled": True, "labels": {"team": "search"}}})
    rule = one(found, "PrometheusRule", "sie")
    assert rule["metadata"]["labels"]["team"] == "search"
    read: list[dict[str, Any]] = rule["spec"]["groups"]
    return read


def test_every_metric_of_an_alert_is_one_of_a_program(groups: list[dict[str, Any]]) -> None:
    rules = [rule for group in groups for rule in group["rules"]]
    assert len(rules) == 8
    for rule in rules:
        names = re.findall(r"sie_\w+", rule["expr"])
        assert names != []
        for name in names:
            plain = name.removesuffix("_total")
            assert re.search(rf'"(?:{plain}|{plain.removeprefix("sie_gateway_")})"', SOURCES), name
        assert "{{ $labels" in rule["annotations"]["summary"] or "by (namespace)" in rule["expr"]


def test_prometheus_reads_the_rules(groups: list[dict[str, Any]], tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("there is no `promtool` on the PATH")
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": groups}))
    checked = subprocess.run([promtool, "check", "rules", tmp_path / "rules.yaml"], capture_output=True, text=True)
    assert (checked.returncode, "8 rules found" in checked.stdout) == (0, True), checked.stderr
