"""A family and a scheduler written outside the tree: installed by pip, they serve without a line of the core."""

from __future__ import annotations

import sys

import httpx
import pytest
from sie_sdk import SIEClient

from tests.plugins.outside import DATA, environment, run, server

FAMILY = DATA / "outside_family" / "sie_test_outside_family" / "__init__.py"
SCHEDULER = DATA / "outside_scheduler" / "sie_test_outside_scheduler" / "__init__.py"
OUTSIDE = ("outside_family", "outside_scheduler")


@pytest.fixture(scope="module")
def url(install, tmp_path_factory):
    """A server with both packages installed, whose work the outside scheduler orders."""
    lists = {"SIE_PLUGINS": "letters,fifo", "SIE_SCHEDULER": "fifo", "SIE_TRACE_HOOKS": "true"}
    folder = tmp_path_factory.mktemp("server")
    with server(["--preload", "outside/letters"], folder, environment(install(*OUTSIDE), **lists)) as address:
        yield address
    told = (folder / "server.log").read_text()
    assert "hook sie_model_families of plugin 'letters' of sie-test-outside-family 0.1.0 -> " in told


def batches(url: str) -> float:
    rows = httpx.get(f"{url}/metrics", timeout=60).text.splitlines()
    return sum(float(row.split()[-1]) for row in rows if row.startswith('sie_batches_total{model="outside/letters"}'))


def test_the_family_has_fewer_than_sixty_lines():
    assert len(FAMILY.read_text().splitlines()) < 60


def test_a_family_from_outside_is_served_over_http(url):
    answer = httpx.post(f"{url}/v1/embeddings", json={"model": "outside/letters", "input": ["abba", "zoo"]}, timeout=60)
    with SIEClient(url) as client:
        scaled = client.encode("outside/letters", {"text": "abba"}, options={"scale": 10.0})

    first, second = (row["embedding"] for row in answer.json()["data"])
    assert first == [2.0, 2.0] + [0.0] * 24
    assert (second[14], second[25], sum(second)) == (2.0, 1.0, 3.0)
    assert scaled["dense"].tolist() == [20.0, 20.0] + [0.0] * 24


def test_its_mistakes_are_answered_like_those_of_any_family(url):
    def refused(**body: object) -> dict[str, str]:
        answer = httpx.post(f"{url}/v1/encode/outside/letters", json=body, timeout=60)
        assert answer.status_code == 400
        return answer.json()["error"]

    assert refused(items=[{"text": "a"}, {}])["param"].startswith("items[1]")
    assert "scale" in refused(items=[{"text": "a"}], params={"options": {"scal": 2}})["message"]
    assert "dense" in refused(items=[{"text": "a"}], params={"output_types": ["sparse"]})["message"]


def test_the_server_lists_it_with_its_distribution(url):
    plugins = httpx.get(f"{url}/v1/plugins", timeout=60).json()["plugins"]

    (report,) = [plugin for plugin in plugins if plugin["name"] == "letters"]
    assert report["distribution"] == "sie-test-outside-family"
    assert report["registers"]["sie_model_families"] == ["letters"]


def test_a_scheduler_from_outside_orders_the_work(url, tmp_path):
    assert len(SCHEDULER.read_text().splitlines()) <= 65
    body = {"model": "outside/letters", "input": ["a", "b", "c", "d", "e"]}
    before = batches(url)
    httpx.post(f"{url}/v1/embeddings", json=body, timeout=60).raise_for_status()
    assert batches(url) - before == 1
    told = httpx.get(f"{url}/v1/plugins", timeout=60).json()["plugins"]
    assert [each["registers"] for each in told if each["name"] == "fifo"] == [{"sie_schedulers": ["fifo"]}]


def test_a_scheduler_that_nobody_registered_stops_the_start(sie):
    done = sie("serve", "--port", "0", SIE_PLUGINS="fake", SIE_SCHEDULER="greedy")

    assert done.returncode != 0
    assert "SIE_SCHEDULER='greedy'" in done.stderr
    assert "there are: fair" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_kit_finds_them_conforming(install, tmp_path):
    (tmp_path / "test_them.py").write_text(
        "from sie_kit import conformance\n\n"
        'test_family = conformance("sie-test-outside-family")\n'
        'test_scheduler = conformance("sie-test-outside-scheduler")\n'
    )

    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_them.py"]
    done = run(command, tmp_path, environment(install(*OUTSIDE)))

    assert done.returncode == 0, done.stdout
    assert int(done.stdout.split(" passed")[0].split()[-1]) > 12
