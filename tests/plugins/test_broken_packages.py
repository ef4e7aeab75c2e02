"""Broken plugins, installed by pip and seen from outside: each gives its report and harms nobody else."""

from __future__ import annotations

import json

import httpx
import pytest

from tests.plugins.outside import environment, server

BROKEN = ("import_error", "wrong_signature", "misspelt_hook", "other_contract")
CLASH = ("clash_one", "clash_two")


@pytest.fixture(scope="module")
def reports(install, sie):
    """What `sie plugins --json` says with all broken packages installed, by distribution."""
    done = sie("plugins", "--json", site=install(*BROKEN))
    assert done.returncode == 1, done.stderr
    assert done.stderr == ""
    return {report["distribution"]: report for report in json.loads(done.stdout)}


@pytest.mark.parametrize(
    ("package", "name", "told"),
    [
        ("import_error", "needy", ["ModuleNotFoundError", "install what provides 'there_is_no_such_library'"]),
        ("wrong_signature", "wrong-signature", ["sie_model_families(settings)", "can not be found in the hookspec"]),
        ("misspelt_hook", "misspelt", ["sie_model_familes", "did you mean sie_model_families?"]),
        ("other_contract", "from-tomorrow", ["was written for sie.family/2", "install a newer sie-core"]),
    ],
)
def test_a_broken_plugin_is_reported_with_its_cause(reports, package, name, told):
    report = reports[f"sie-test-{package.replace('_', '-')}"]

    assert report["name"] == name
    assert report["state"] == "broken"
    assert report["version"] == "0.1.0"
    assert report["module"] == f"sie_test_{package}"
    assert report["registers"] == {}
    for words in told:
        assert words in report["cause"]


def test_broken_plugins_cost_only_themselves(reports):
    assert reports["sie-fake"]["state"] == "active"
    assert reports["sie-fake"]["registers"]["sie_model_families"] == ["fake"]
    assert reports["sie-core"]["state"] == "active"


def test_the_plain_listing_shows_the_cause_too(install, sie):
    done = sie("plugins", site=install(*BROKEN))

    assert done.returncode == 1
    line, cause, *_ = done.stdout[done.stdout.index("misspelt") :].splitlines()
    assert "sie-test-misspelt-hook 0.1.0" in line
    assert line.endswith("broken")
    assert "did you mean sie_model_families?" in cause


def test_a_model_that_may_need_a_broken_plugin_names_it_and_its_cause(install, sie, tmp_path):
    (tmp_path / "needs.yaml").write_text(
        "sie_id: test/needs\npackage_backed: true\nprofiles: { default: { adapter_path: needy-family } }\n"
    )

    done = sie("models", "show", "test/needs", site=install(*BROKEN), SIE_MODELS_DIR=str(tmp_path))

    told = done.stdout + done.stderr
    assert "needy-family" in told
    assert "needy (sie-test-import-error 0.1.0)" in told
    assert "there_is_no_such_library" in told


def test_the_list_of_models_and_a_verification_mention_them(install, sie):
    for command in (("models",), ("verify", "sie-fake/reranker")):
        done = sie(*command, site=install(*BROKEN), SIE_DEVICE="cpu", SIE_PLUGINS_BLOCKED="pytorch,gliner")
        assert "sie-fake/reranker" in done.stdout
        assert "Broken plugins, see `sie plugins`: " in done.stderr
        assert "needy (sie-test-import-error 0.1.0)" in done.stderr


def test_a_server_with_broken_plugins_serves_the_others_and_shows_the_causes(install, tmp_path):
    lists = {"SIE_PLUGINS_BLOCKED": "pytorch"}
    with server(["--preload", "sie-fake/dense"], tmp_path, environment(install(*BROKEN), **lists)) as url:
        body = {"model": "sie-fake/dense", "input": "a"}
        answer = httpx.post(f"{url}/v1/embeddings", json=body, timeout=60)
        plugins = httpx.get(f"{url}/v1/plugins", timeout=60).json()["plugins"]

    assert answer.status_code == 200
    causes = {plugin["name"]: plugin["cause"] for plugin in plugins if plugin["state"] == "broken"}
    assert set(causes) == {"needy", "wrong-signature", "misspelt", "from-tomorrow"}
    assert "there_is_no_such_library" in causes["needy"]
    assert "plugin 'needy' of sie-test-import-error 0.1.0 is broken" in (tmp_path / "server.log").read_text()


def test_a_strict_start_refuses_broken_plugins_by_name(install, sie):
    done = sie("serve", "--port", "0", site=install(*BROKEN), SIE_STRICT_PLUGINS="true", SIE_PLUGINS="needy,fake")

    assert done.returncode == 2
    assert "'needy' of sie-test-import-error 0.1.0" in done.stderr
    assert "there_is_no_such_library" in done.stderr
    assert "SIE_PLUGINS_BLOCKED=needy" in done.stderr


def test_a_blocked_plugin_is_not_even_imported(install, sie):
    lists = {"SIE_PLUGINS": "fake,needy", "SIE_PLUGINS_BLOCKED": "needy", "SIE_STRICT_PLUGINS": "true"}
    done = sie("plugins", "--json", site=install(*BROKEN), **lists)

    assert done.returncode == 0, done.stderr
    found = {report["name"]: report for report in json.loads(done.stdout)}
    assert found["needy"]["state"] == found["misspelt"]["state"] == "blocked"
    assert found["needy"]["cause"] == "SIE_PLUGINS_BLOCKED names it"
    assert found["misspelt"]["cause"] == "SIE_PLUGINS does not name it"


def test_two_plugins_that_claim_one_family_are_both_broken_and_named_and_others_serve(install, sie):
    done = sie("plugins", "--json", site=install(*CLASH))

    assert done.returncode == 1, done.stderr
    reports = {report["distribution"]: report for report in json.loads(done.stdout)}
    for name, other in (("one", "two"), ("two", "one")):
        report = reports[f"sie-test-clash-{name}"]
        assert report["state"] == "broken"
        assert "the model family 'clash'" in report["cause"]
        assert f"of sie-test-clash-{other} 0.1.0 (sie_test_clash_{other})" in report["cause"]
        assert f"SIE_PLUGINS_BLOCKED=sie-test-clash-{other}" in report["cause"]
    assert reports["sie-fake"]["state"] == "active"


def test_the_remedy_a_clash_names_works(install, sie):
    done = sie("plugins", "--json", site=install(*CLASH), SIE_PLUGINS_BLOCKED="sie-test-clash-two")

    states = {report["distribution"]: report["state"] for report in json.loads(done.stdout)}
    assert states["sie-test-clash-one"] == "active"
    assert states["sie-test-clash-two"] == "blocked"
