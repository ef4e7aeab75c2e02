"""A memory manager written outside the tree: installed by pip and chosen by a setting, it decides who stays."""

from __future__ import annotations

import sys

import httpx
import pytest

from tests.plugins.outside import environment, run, server

MODELS = ("sie-fake/dense", "sie-fake/tokens", "sie-fake/embedder")


@pytest.fixture(scope="module")
def url(install, tmp_path_factory):
    """A server that holds one model at a time, as the outside manager says."""
    chosen = {"SIE_PLUGINS": "fake,one-at-a-time", "SIE_MEMORY_MANAGER": "one-at-a-time"}
    with server([], tmp_path_factory.mktemp("server"), environment(install("outside_memory"), **chosen)) as address:
        yield address


def loaded(url: str) -> list[str]:
    models = httpx.get(f"{url}/v1/models", timeout=60).json()["models"]
    return [model["name"] for model in models if model["loaded"]]


def test_it_decides_which_models_stay(url):
    for model in (*MODELS, *MODELS):
        body = {"items": [{"text": "a"}]}
        while (answer := httpx.post(f"{url}/v1/encode/{model}", json=body, timeout=60)).status_code == 503:
            assert answer.json()["error"]["code"] == "MODEL_LOADING"
        assert answer.status_code == 200
        assert loaded(url) == [model]


def test_the_server_lists_it(url):
    plugins = httpx.get(f"{url}/v1/plugins", timeout=60).json()["plugins"]
    (report,) = [plugin for plugin in plugins if plugin["name"] == "one-at-a-time"]
    assert report["registers"]["sie_memory_managers"] == ["one-at-a-time"]


def test_a_manager_that_nobody_registered_stops_the_start(sie):
    done = sie("serve", "--port", "0", SIE_PLUGINS="fake", SIE_MEMORY_MANAGER="roomy")
    assert done.returncode != 0
    assert "SIE_MEMORY_MANAGER='roomy' names no registered memory manager; there are: lru" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_kit_finds_it_conforming_and_checks_ours_alike(install, tmp_path):
    (tmp_path / "test_it.py").write_text(
        'from sie_kit import conformance\n\ntest_manager = conformance("sie-test-outside-memory")\n'
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py"]
    done = run(command, tmp_path, environment(install("outside_memory")))
    assert done.returncode == 0, done.stdout
    assert int(done.stdout.split(" passed")[0].split()[-1]) == 14
