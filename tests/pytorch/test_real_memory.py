"""Real allocations that fail: the kernel gives a running server no more address space, and then does again."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest

from tests.conftest import MINILM, run_server

resource = pytest.importorskip("resource")
pytestmark = pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="only Linux limits a running process")

HEADROOM = 16 * 2**20
"""Bytes: to read a large body, not to compute it."""
LARGE = ["word " * 500] * 64
"""A batch of 16 384 tokens, for which PyTorch allocates some hundred megabytes."""


def address_space(pid: int) -> int:
    return 1024 * int(re.search(r"VmSize:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1])


def ask(url: str, texts: list[str]) -> tuple[int, str | None, str | None]:
    answer = httpx.post(f"{url}/v1/embeddings", json={"model": MINILM, "input": texts}, timeout=300)
    error = answer.json().get("error") or {}
    return answer.status_code, error.get("code"), answer.headers.get("Retry-After")


@pytest.mark.timeout(600)  # large batches, on a machine that may be busy
def test_a_server_without_memory_refuses_what_is_large_answers_what_is_small_and_recovers(tmp_path):
    # PyTorch's own kernels: those of sie-cpu need little enough to be answered even then.
    env = {"SIE_DEVICE": "cpu", "SIE_PLUGINS_BLOCKED": "cpu", "SIE_MAX_BATCH_MS": "100000", "OMP_NUM_THREADS": "1"}
    with run_server(tmp_path, env, args=["--preload", MINILM]) as server:
        pid = server.process.pid
        assert ask(server.url, ["small"])[0] == 200
        resource.prlimit(pid, resource.RLIMIT_AS, (address_space(pid) + HEADROOM, resource.RLIM_INFINITY))
        for _ in range(3):
            status, code, retry_after = ask(server.url, LARGE)
            assert status == 200 or (status, code, retry_after) == (503, "RESOURCE_EXHAUSTED", "5")
            assert ask(server.url, ["small"])[0] == 200
            assert (server.probe("/livez"), server.probe("/readyz")) == (200, 200)
        resource.prlimit(pid, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        assert ask(server.url, LARGE)[0] == 200
        failures = httpx.get(f"{server.url}/metrics", timeout=60).text
    assert re.search(r'sie_batch_failures_total{[^}]*reason="out_of_memory"} [1-9]', failures)
