"""A disk that was full for a while: health says why nothing is answered; a broker started with room stores."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.conftest import run_cluster
from tests.soak.faults.cluster import MODEL, below, journalled, until

pytestmark = pytest.mark.timeout(300)


def mounted(folder: Path, how: str) -> subprocess.CompletedProcess[str]:
    command = ["mount", "-t", "tmpfs", "-o", how, "tmpfs", str(folder)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """The folder of a cluster, on a disk in memory that takes what the broker may store."""
    folder = tmp_path / "cluster"
    folder.mkdir()
    done = mounted(folder, "size=3g")
    if done.returncode != 0:
        pytest.skip(f"a tmpfs cannot be mounted here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(disk: Path) -> None:
    """Leave the disk no room; it is made small first, as it lies in memory."""
    assert mounted(disk, "remount,size=2m").returncode == 0
    with contextlib.suppress(OSError), (disk / "filling").open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass


def test_after_a_full_disk_a_broker_that_is_ended_comes_back_and_stores_work(disk: Path, tmp_path: Path) -> None:
    journalled(tmp_path)
    with run_cluster(tmp_path, "--preload", MODEL) as server, httpx.Client(base_url=server.url, timeout=60) as client:

        def is_answered() -> bool:
            body = {"items": [{"text": "a text that fills a page" * 200}]}
            return client.post(f"/v1/encode/{MODEL}", json=body).is_success

        def problems() -> str:
            return "; ".join(client.get("/health").json()["problems"])

        assert is_answered()
        fill(disk)
        until(lambda: not is_answered() and "the broker stores no work" in problems(), "health")
        assert client.get("/readyz").is_success
        (disk / "filling").unlink()
        mounted(disk, "remount,size=3g")
        (broker,) = (process for process in below(server) if process.name() == "nats-server")
        broker.terminate()
        until(is_answered, "an answer")
        until(lambda: not problems(), "health")
