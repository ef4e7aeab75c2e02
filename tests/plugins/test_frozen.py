"""Plugins that were built for earlier releases, as wheels: each is served, or broken alone with the remedy."""

from __future__ import annotations

import json

import httpx
import pytest

from tests.plugins.outside import DATA, SIE, environment, pip, run, server

FROZEN = DATA.with_name("frozen")
OLD = {
    "old-table": (
        "active",
        "CONTRACT_VERSION of sie_old_table is deprecated and goes with sie-core 1.2: write INTERFACES",
    ),
    "old-table-reference": (
        "broken",
        "registers the reference 'model2vec', and so does plugin 'sentence-transformers'",
    ),
    "old-keyword": ("broken", "docs/extend/compatibility.md says what replaced it"),
    "old-fifo": ("broken", "sie_batch_policies, which became sie_schedulers before release 1.0"),
}
OF_1_0 = {
    "sie-test-outside-architecture": {"sie_architectures"},
    "sie-test-outside-family": {"sie_model_families", "sie_model_folders"},
    "sie-test-outside-head": {"sie_model_families"},
    "sie-test-outside-memory": {"sie_memory_managers"},
    "sie-test-outside-onnx": {"sie_model_families"},
    "sie-test-outside-postprocessor": {"sie_postprocessors"},
    "sie-test-outside-queue": {"sie_queue_transports"},
    "sie-test-outside-reference": {"sie_references", "sie_settings"},
    "sie-test-outside-runner": {"sie_runners"},
    "sie-test-outside-scheduler": {"sie_schedulers"},
    "sie-test-outside-static": {"sie_model_families"},
    "sie-test-outside-weights": {"sie_weight_tiers", "sie_object_stores"},
}
"""The hooks of each."""
CHOSEN = {
    # Two of them stand in for a built-in plugin.
    "SIE_PLUGINS_BLOCKED": "sie_core.defaults.hub_tier,sie_core.defaults.postprocessors,pytorch,gliner,cpu,flash",
    "SIE_SCHEDULER": "fifo",
    "SIE_MEMORY_MANAGER": "one-at-a-time",
    "SIE_DEVICE": "cpu",
}


@pytest.fixture(scope="module")
def variables(tmp_path_factory):
    """A user's shell with all of them installed, and the settings that choose them."""
    site = tmp_path_factory.mktemp("frozen")
    pip("install", "--no-compile", "--target", site, *sorted(FROZEN.rglob("*.whl")))
    return environment(site, SIE_LOCAL_CACHE=str(tmp_path_factory.mktemp("cache")), **CHOSEN)


@pytest.fixture(scope="module")
def reports(variables, tmp_path_factory):
    done = run([SIE, "plugins", "--json"], tmp_path_factory.mktemp("shell"), variables)
    assert done.returncode == 1, done.stderr
    return json.loads(done.stdout)


def test_every_frozen_wheel_is_expected_here():
    assert {wheel.name.split("-")[0].replace("_", "-") for wheel in FROZEN.glob("release_1_0/*.whl")} == set(OF_1_0)


@pytest.mark.parametrize("name", OLD)
def test_a_plugin_of_before_the_release_is_served_or_told_what_to_do(reports, name):
    state, told = OLD[name]
    (report,) = [each for each in reports if each["name"] == name]

    assert report["state"] == state
    assert told in " ".join([report["cause"] or "", *report["deprecated"]])


@pytest.mark.parametrize("distribution", OF_1_0)
def test_a_plugin_of_the_release_is_active_with_all_that_it_registers(reports, distribution):
    (report,) = [each for each in reports if each["distribution"] == distribution]

    assert (report["state"], report["cause"], report["deprecated"]) == ("active", None, [])
    assert set(report["registers"]) == OF_1_0[distribution]


def test_families_of_before_and_of_the_release_answer_in_one_server(variables, tmp_path):
    with server(["--preload", "outside/letters"], tmp_path, variables) as url:
        answers = [
            httpx.post(f"{url}/v1/embeddings", json={"model": model, "input": ["abba"] * 3}, timeout=60)
            for model in ("outside/letters", "old/letters")
        ]
        ready = httpx.get(f"{url}/readyz", timeout=60)

    for answer in answers:
        assert answer.status_code == 200, answer.text
        assert answer.json()["data"][2]["embedding"] == [2.0, 2.0] + [0.0] * 24
    assert ready.status_code == 200
