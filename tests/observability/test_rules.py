"""Dashboards, rules and runbooks name what the code measures, and Prometheus' own tool accepts them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.test_generated import ROOT, load_generator

FOLDER = ROOT / "helm" / "observability"
DASHBOARDS = sorted((FOLDER / "dashboards").glob("*.json"))
RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load((FOLDER / "rules.yaml").read_text())["groups"] for rule in group["rules"]
]
ALERTS = [rule for rule in RULES if "alert" in rule]
SUFFIXES = {"counter": ["_total"], "gauge": [""], "histogram": ["_bucket", "_sum", "_count"]}
OF_ALL = {"up", "process_cpu_seconds_total", "process_resident_memory_bytes"}


def known() -> dict[str, set[str]]:
    """The labels of each series that the programs tell, by its name."""
    found: dict[str, set[str]] = {name: set() for name in OF_ALL}
    for families in load_generator().metric_families().values():
        for family, labels in families:
            for suffix in SUFFIXES[family.type]:
                found.setdefault(family.name + suffix, set()).update(labels)
    return found


def queries(dashboard: dict[str, Any]) -> list[str]:
    return [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]


def test_there_are_dashboards_and_alerts() -> None:
    assert {file.stem for file in DASHBOARDS} == {
        "overview", "model", "capacity", "cluster", "autoscaling",
    }  # fmt: skip
    assert len(ALERTS) > 10


@pytest.mark.parametrize("file", DASHBOARDS, ids=lambda file: file.stem)
def test_a_dashboard_is_what_its_python_file_makes(file: Path, tmp_path: Path) -> None:
    shutil.copytree(file.parent, tmp_path / "dashboards")
    copy = tmp_path / "dashboards" / file.name
    copy.unlink()
    subprocess.run([sys.executable, copy.with_suffix(".py")], check=True, timeout=60)
    assert copy.read_text() == file.read_text(), f"run {file.with_suffix('.py').name}"


def test_every_query_names_series_and_labels_that_the_code_tells() -> None:
    told, recorded = known(), {rule["record"] for rule in RULES if "record" in rule}
    asked = [query for file in DASHBOARDS for query in queries(json.loads(file.read_text()))]
    for query in [*asked, *(rule["expr"] for rule in RULES)]:
        plain = re.sub(r'"[^"]*"', "", query)
        names = [name for name in re.findall(r"[a-z][\w:]*(?=[{\[)]| [<>=]|$)", plain) if "_" in name or name == "up"]
        names = [name for name in names if ":" not in name or name not in recorded]
        assert names or ":" in plain, query
        assert [name for name in names if name not in told] == [], query
        for name, selected in re.findall(r"(\w+)\{([^}]*)\}", query):
            labels = {each.strip() for each in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", re.sub(r'"[^"]*"', "", selected))}
            assert labels <= told[name] | {"job", "instance", "le"}, query
        of = set().union(*(told.get(name, set()) for name in names)) | {"job", "instance", "le"}
        for grouped in re.findall(r"by \(([^)]*)\)", query):
            assert {label.strip() for label in grouped.split(",")} <= of, query


def test_every_panel_has_a_unit_and_a_legend_of_labels_that_its_query_keeps() -> None:
    for file in DASHBOARDS:
        for panel in json.loads(file.read_text())["panels"]:
            assert panel["fieldConfig"]["defaults"]["unit"]
            for target in panel["targets"]:
                kept = {each.strip() for by in re.findall(r"by \(([^)]*)\)", target["expr"]) for each in by.split(",")}
                assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= kept, panel["title"]
                seconds = re.search(r"_seconds(_bucket)?\{", target["expr"]) is not None
                assert seconds == (panel["fieldConfig"]["defaults"]["unit"] == "s"), panel["title"]


def test_every_alert_has_a_runbook_and_a_case_of_each_kind() -> None:
    runbooks = ROOT / "docs" / "operate" / "observe" / "runbooks.md"
    tests = [test["name"] for test in yaml.safe_load((FOLDER / "rules_test.yaml").read_text())["tests"]]
    for alert in ALERTS:
        name = alert["alert"]
        assert alert["annotations"]["runbook"] == f"docs/operate/observe/runbooks.md#{name.lower()}"
        assert f"\n## {name}\n" in runbooks.read_text()
        assert {f"{name} fires", f"{name} does not"} <= set(tests)


def test_promtool_accepts_the_rules_and_their_cases_hold() -> None:
    if (promtool := shutil.which("promtool")) is None:
        pytest.skip("promtool is not installed")
    for command in (["check", "rules", "rules.yaml"], ["test", "rules", "rules_test.yaml"]):
        done = subprocess.run([promtool, *command], cwd=FOLDER, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
