"""Broken plugins, installed by pip and seen from outside: each gives its report and harms nobody else."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from sie_core.contracts import CONTRACT_VERSION


def report_of(done: subprocess.CompletedProcess[str], name: str) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    reports = json.loads(done.stdout)
    others = [report for report in reports if report["distribution"] in {"sie-core", "sie-fake"}]
    assert len(others) > 1
    assert {report["state"] for report in others} == {"active"}
    (report,) = [report for report in reports if report["name"] == name]
    return report


@pytest.mark.parametrize(
    ("package", "name", "told"),
    [
        ("import_error", "needy", ["ModuleNotFoundError", "install what provides 'there_is_no_such_library'"]),
        ("wrong_signature", "wrong-signature", ["sie_model_families(settings)", "can not be found in the hookspec"]),
        ("misspelt_hook", "misspelt", ["sie_model_familes", "did you mean sie_model_families?"]),
        ("other_contract", "from-tomorrow", ["contract version 2", f"contract version {CONTRACT_VERSION}", "install"]),
    ],
)
def test_a_broken_plugin_is_reported_with_its_cause_and_costs_only_itself(install, sie, package, name, told):
    report = report_of(sie("plugins", "--json", site=install(package)), name)

    assert report["state"] == "broken"
    assert report["distribution"] == f"sie-test-{package.replace('_', '-')}"
    assert report["version"] == "0.1.0"
    assert report["module"] == f"sie_test_{package}"
    assert report["registers"] == {}
    for words in told:
        assert words in report["cause"]


def test_the_plain_listing_shows_the_cause_too(install, sie):
    done = sie("plugins", site=install("misspelt_hook"))

    assert done.returncode == 0
    assert done.stderr == ""
    line, cause, *_ = done.stdout[done.stdout.index("misspelt") :].splitlines()
    assert "sie-test-misspelt-hook 0.1.0" in line
    assert line.endswith("broken")
    assert "did you mean sie_model_families?" in cause


def test_a_strict_start_refuses_a_broken_plugin_by_name(install, sie):
    done = sie("serve", "--port", "0", site=install("import_error"), SIE_STRICT_PLUGINS="true")

    assert done.returncode == 2
    assert "'needy' of sie-test-import-error 0.1.0" in done.stderr
    assert "there_is_no_such_library" in done.stderr
    assert "SIE_PLUGINS_BLOCKED=needy" in done.stderr


def test_a_blocked_plugin_is_not_even_imported(install, sie):
    blocked = sie("plugins", "--json", site=install("import_error"), SIE_PLUGINS_BLOCKED="needy")
    unlisted = sie("plugins", "--json", site=install("import_error"), SIE_PLUGINS="fake")

    assert report_of(blocked, "needy")["state"] == "blocked"
    assert "SIE_PLUGINS_BLOCKED" in report_of(blocked, "needy")["cause"]
    assert report_of(unlisted, "needy")["state"] == "blocked"
    assert "SIE_PLUGINS " in report_of(unlisted, "needy")["cause"]


@pytest.mark.parametrize("command", [("plugins",), ("serve", "--port", "0"), ("models",)])
def test_two_plugins_that_claim_one_family_stop_the_start_and_are_both_named(install, sie, command):
    done = sie(*command, site=install("clash_one", "clash_two"))

    assert done.returncode == 2
    assert "model family 'clash'" in done.stderr
    assert "sie-test-clash-one 0.1.0 (sie_test_clash_one)" in done.stderr
    assert "sie-test-clash-two 0.1.0 (sie_test_clash_two)" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_remedy_a_clash_names_works(install, sie):
    clash = sie("plugins", site=install("clash_one", "clash_two"))
    remedy = "SIE_PLUGINS_BLOCKED=sie-test-clash-two"
    assert remedy in clash.stderr

    name, value = remedy.split("=")
    done = sie("plugins", "--json", site=install("clash_one", "clash_two"), **{name: value})

    states = {report["distribution"]: report["state"] for report in json.loads(done.stdout)}
    assert states["sie-test-clash-one"] == "active"
    assert states["sie-test-clash-two"] == "blocked"


def test_hook_calls_are_logged_on_request(install, sie):
    done = sie("plugins", site=install("outside_policy"), SIE_TRACE_HOOKS="true")

    assert done.returncode == 0
    assert "hook sie_batch_policies of plugin 'one-by-one' of sie-test-outside-policy 0.1.0 -> " in done.stderr
