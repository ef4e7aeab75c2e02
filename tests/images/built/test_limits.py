"""The CPU image of `default` at its limits: of memory and CPUs under load, of a cache that is full or read-only."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from sie_sdk import SIEClient

from tests.cache import fake_hub
from tests.images.built.programs import EXTRA_HOSTS, HOST, Container, container, run
from tests.images.built.tools import free_port, wait_until_it_answers
from tests.pytorch.bare import minilm

pytestmark = pytest.mark.timeout(3000)  # base, wheels and image are made on first use
EMBEDDED = "sentence-transformers/all-MiniLM-L6-v2"
FETCHED = ("BAAI/bge-small-en-v1.5", "thenlper/gte-small", "sentence-transformers/multi-qa-MiniLM-L6-cos-v1")
"""The embedded model's files in the places of these: two of the four in float32 leave no room for a third in 600 MB."""
TEXTS = ["a river in the city with food and a note " * 25] * 8
"""Of 227 tokens each."""
OOM_KILLS = """
import glob
for file in glob.glob("/sys/fs/cgroup/memory.events") + glob.glob("/sys/fs/cgroup/memory/memory.oom_control"):
    print(dict(line.split() for line in open(file))["oom_kill"])
"""
THREADS = """
import glob
for status in glob.glob("/proc/[0-9]*/status"):
    if "/opt/sie/bin/sie\\0serve" in open(status.replace("status", "cmdline")).read().replace("init.py\\0/opt", ""):
        print(dict(line.split(":") for line in open(status))["Threads"].strip())
"""


@dataclass
class Server:
    url: str
    container: Container
    log: Path

    def failure(self) -> str:
        """Have weights fetched that it does not hold, and return what it says of it."""
        body = {"model": FETCHED[0], "input": "x"}
        answer = httpx.post(f"{self.url}/v1/embeddings", json=body, timeout=100)
        assert answer.status_code == 502, answer.text
        assert httpx.post(f"{self.url}/v1/embeddings", json={**body, "model": EMBEDDED}, timeout=100).is_success
        found: str = answer.json()["error"]["message"]
        return found


@contextmanager
def server(image: str, folder: Path, *options: str) -> Iterator[Server]:
    """A server on a port of this machine, and a Hub that it reaches."""
    port, hosts = free_port(), [f"--add-host={each}" for each in EXTRA_HOSTS]
    with fake_hub.run_hub("0.0.0.0") as hub:
        hub.files |= dict.fromkeys(FETCHED, fake_hub.files_of(minilm()))
        variables = {"HF_ENDPOINT": hub.url.replace("0.0.0.0", HOST), "SIE_DEFAULT_COMPUTE_PRECISION": "float32"}
        options += tuple(f"--env={name}={value}" for name, value in variables.items())
        published = f"--publish=127.0.0.1:{port}:8080"
        with container(image, folder / "log", published, *hosts, *options, network="bridge") as one:
            url = f"http://127.0.0.1:{port}"
            wait_until_it_answers(f"{url}/readyz")
            yield Server(url, one, folder / "log")


def test_in_600_mb_and_on_one_cpu_models_are_evicted_under_load_and_nobody_is_killed(
    default_image: str, tmp_path: Path
) -> None:
    limits = ("--memory", "600m", "--cpus", "1", "--volume", "/cache")

    def ask(model: str) -> int:
        with SIEClient(one.url, timeout_s=300) as client:
            return len(client.encode(model, TEXTS))

    with server(default_image, tmp_path, *limits) as one, ThreadPoolExecutor(4) as pool:
        assert set(pool.map(ask, [EMBEDDED, *FETCHED] * 3)) == {len(TEXTS)}
        assert set(one.container.python(OOM_KILLS).split()) == {"0"}
        assert one.container.stop() == 0
        assert "was evicted" in one.log.read_text()


def test_threads_follow_the_limit_of_cpus(default_image: str, tmp_path: Path) -> None:
    started = []
    for cpus in (1, 2):
        limits = ("--memory", "1g", "--cpus", str(cpus), "--volume", "/cache", "--env=SIE_LOG_LEVEL=DEBUG")
        with server(default_image, tmp_path, *limits) as one:
            (told,) = re.findall(r"CPU budget: (.*); set: ", one.log.read_text())
            wanted = min(cpus, len(os.sched_getaffinity(0)))
            assert told.startswith(f"{wanted} threads (")
            assert told.endswith(f"cgroup quota {cpus}); compute {wanted}, tokenisation {wanted}")
            with SIEClient(one.url, timeout_s=300) as client:
                client.encode(EMBEDDED, TEXTS)
            started.append(int(one.container.python(THREADS)))
    assert started[0] < started[1] or len(os.sched_getaffinity(0)) == 1


def test_a_cache_without_room_is_told_and_the_rest_is_served(default_image: str, tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.mkdir()
    run("mount", "-t", "tmpfs", "-o", "size=8m,uid=10001,gid=10001", "tmpfs", full)
    try:
        with server(default_image, tmp_path, "--memory", "1g", "--volume", f"{full}:/cache") as one:
            told = one.failure()
            assert f"{FETCHED[0]} needs 91.6 MB and the disk of the local cache has 8." in told
            assert "`sie cache prune`" in told
    finally:
        run("umount", full)


def test_a_cache_that_may_not_be_written_to_is_told_and_the_rest_is_served(default_image: str, tmp_path: Path) -> None:
    with server(default_image, tmp_path, "--memory", "1g") as one:
        assert f"the local cache cannot take {FETCHED[0]}: Read-only file system" in one.failure()
