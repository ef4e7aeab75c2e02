"""Plugins that fail after they were discovered, installed beside the real ones: each is named and harms nobody else."""

from __future__ import annotations

import json
import re

import httpx
import pytest

from tests.conftest import MINILM
from tests.plugins.outside import QUICK, environment, run, server

CULPRITS = {
    "claims-that-raise": "the model family 'claims-that-raise' failed to read a model's card (KeyError)",
    "claims-that-hang": "the model family 'claims-that-hang' did not come back within 5 s from `claims`",
    "claims-of-junk": "the model family 'claims-of-junk' returned a bool from `claims`",
    "tier-that-cannot-be-made": "the weight tier 'tier-that-cannot-be-made' cannot be made and is passed over",
    "tier-that-raises": "the weight tier 'tier-that-raises' failed in `fetch` (KeyError)",
    "tier-that-exits": "the weight tier 'tier-that-exits' failed in `fetch` (SystemExit)",
    "tier-of-nowhere": "the weight tier 'tier-of-nowhere' failed in `fetch` (NotADirectoryError)",
    "probe-that-raises": "the device probe 'probe-that-raises' failed and is passed over (RuntimeError)",
    "probe-of-junk": "the device probe 'probe-of-junk' failed and is passed over (TypeError)",
    "changes": "its import changed the working directory to /, which is undone",
    "manager-that-raises": "the memory manager 'manager-that-raises' raised or answered what it must not",
}
"""By plugin, what each did, as far as a server finds it out by itself."""
TRIED = {
    **CULPRITS,
    "postprocessor-that-raises": "the postprocessor 'postprocessor-that-raises' cannot be made (KeyError)",
    "scheduler-of-junk": "the scheduler 'scheduler-of-junk' failed (BrokenScheduler)",
}
"""What `sie plugins` finds out besides, with the scheduler chosen."""


@pytest.fixture(scope="module")
def site(install):
    return install("faults")


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    folder = tmp_path_factory.mktemp("faults")
    return {
        "SIE_MEMORY_MANAGER": "manager-that-raises",
        "SIE_LOCAL_CACHE": str(folder),
        "SIE_HF_FALLBACK": "false",
        "SIE_DEVICE": "auto",
        "SIE_PLUGINS_BLOCKED": "gliner,cpu",
    }


def failing(reports: list[dict[str, str]]) -> dict[str, str]:
    return {report["name"]: report["cause"] for report in reports if report["state"] == "failing"}


def test_beside_them_the_embedded_model_answers_and_the_server_names_each(site, settings, tmp_path):
    with server(["--preload", MINILM], tmp_path, environment(site, **settings)) as url:
        body = {"model": MINILM, "input": ["a text", "another"]}
        answer = httpx.post(f"{url}/v1/embeddings", json=body, timeout=60)
        plugins = failing(httpx.get(f"{url}/v1/plugins", timeout=60).json()["plugins"])

    assert answer.status_code == 200
    assert [len(row["embedding"]) for row in answer.json()["data"]] == [384, 384]
    log = (tmp_path / "server.log").read_text()
    for name, told in CULPRITS.items():
        assert told in plugins[name]
        assert f"plugin '{name}' of sie-test-faults 0.1.0: {told}" in log
    assert "its import called logging.disable(50), which is undone" in plugins["changes"]
    assert set(plugins) == set(CULPRITS)
    assert re.search(r"plugin 'slow' of sie-test-faults 0\.1\.0: its import took [1-9]", log)


def test_sie_plugins_names_each_and_says_so_with_its_status(sie, site, settings):
    done = sie("plugins", "--json", site=site, SIE_SCHEDULER="scheduler-of-junk", **settings)

    assert done.returncode == 1
    found = failing(json.loads(done.stdout))
    for name, told in TRIED.items():
        assert told in found[name]
    assert set(found) == set(TRIED)
    assert "'what no config has'" in found["claims-that-raise"]
    assert "hello from Python\n" in done.stderr
    assert "hello from C\nhello from a child\n" in done.stderr


@pytest.mark.parametrize("command", [("models", "--json"), ("models", "show", MINILM, "--json")])
def test_sie_models_still_answers_and_names_them(sie, site, settings, command):
    blocked = f"{settings['SIE_PLUGINS_BLOCKED']},claims-that-hang"
    done = sie(*command, site=site, **{**settings, "SIE_PLUGINS_BLOCKED": blocked})

    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told.get("family", "cpu") in ("cpu", "pytorch")
    assert "Broken plugins, see `sie plugins`: " in done.stderr
    assert "tier-that-cannot-be-made" in done.stderr
    assert "claims-that-raise" in done.stderr


def test_an_import_that_ends_the_process_is_named_at_the_next_start(sie, site, settings):
    lists = {**settings, "SIE_PLUGINS": "dies,fake", "SIE_PLUGINS_BLOCKED": ""}
    first = sie("plugins", site=site, FAULTS_DIE="1", **lists)
    next_one = sie("plugins", site=site, FAULTS_DIE="1", **lists)
    without = sie("plugins", site=site, FAULTS_DIE="1", **{**lists, "SIE_PLUGINS_BLOCKED": "dies"})
    healed = sie("plugins", site=site, **lists)

    told = "an earlier start ended while the plugin 'dies' of sie-test-faults 0.1.0 was imported"
    assert [first.returncode, next_one.returncode] == [7, 7]
    assert told not in first.stderr
    assert told in next_one.stderr
    assert told in without.stderr
    assert "set SIE_PLUGINS_BLOCKED=dies to start without it" in without.stderr
    assert "blocked" in without.stdout
    assert told not in healed.stderr


HANGING = {
    "hangs": "its import did not come back within 4 s; set SIE_PLUGINS_BLOCKED=hangs to start without waiting for it",
    "probe-that-hangs": "the device probe 'probe-that-hangs' did not come back within 2 s from `devices`",
    "tier-that-hangs": "the weight tier 'tier-that-hangs' has not answered `fetch` for 2 s and is passed over",
}
LIGHT = {"SIE_PLUGINS": f"fake,scheduler-of-junk,scheduler-that-lacks-a-parameter,{','.join(HANGING)}"}


def test_what_hangs_is_named_and_the_others_are_listed(site, settings, tmp_path):
    older = {"SIE_SCHEDULER": "scheduler-that-lacks-a-parameter"}
    variables = environment(site, FAULTS_HANG="1", **{**settings, **LIGHT, **older, "SIE_MEMORY_MANAGER": "lru"})
    done = run([*QUICK, "plugins", "--json"], tmp_path, variables)

    assert done.returncode == 1, done.stderr
    reports = {report["name"]: report for report in json.loads(done.stdout)}
    for name, told in HANGING.items():
        assert told in reports[name]["cause"]
    lacking = reports["scheduler-that-lacks-a-parameter"]["cause"]
    assert "the scheduler 'scheduler-that-lacks-a-parameter' cannot be made (UnfitObject)" in lacking
    assert "its `next` lacks the parameter 'within'" in lacking
    assert reports["fake"]["state"] == "active"


def test_beside_what_hangs_models_answer_and_a_failed_scheduler_makes_way_for_the_default(site, settings, tmp_path):
    chosen = {"SIE_SCHEDULER": "scheduler-of-junk", "SIE_MEMORY_MANAGER": "lru"}
    variables = environment(site, FAULTS_HANG="1", **{**settings, **LIGHT, **chosen})
    with server(["--preload", "sie-fake/dense"], tmp_path, variables, QUICK) as url:
        body = {"model": "sie-fake/dense", "input": "a"}
        ready = httpx.get(f"{url}/readyz", timeout=60)
        answers = [httpx.post(f"{url}/v1/embeddings", json=body, timeout=60) for _ in range(3)]
        unready, alive = (httpx.get(f"{url}/{path}", timeout=60) for path in ("readyz", "healthz"))
        plugins = failing(httpx.get(f"{url}/v1/plugins", timeout=60).json()["plugins"])

    assert (ready.status_code, unready.status_code, alive.status_code) == (200, 503, 200)
    assert [answer.status_code for answer in answers] == [503, 200, 200]
    told = "the scheduler 'scheduler-of-junk' of the plugin 'scheduler-of-junk' of sie-test-faults 0.1.0 failed"
    assert f"{told}: 'fair' serves until a restart" in unready.text
    assert "failed (BrokenScheduler)" in plugins["scheduler-of-junk"]
    assert HANGING["probe-that-hangs"] in plugins["probe-that-hangs"]
    assert HANGING["hangs"] in (tmp_path / "server.log").read_text()
