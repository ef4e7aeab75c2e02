"""What tests of a cluster that begins without workers share."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

BOUND_S = 120.0


def metric(url: str, name: str) -> float:
    """The sum of a metric's series."""
    text = httpx.get(f"{url}/metrics", timeout=BOUND_S).text
    return sum(float(value) for value in re.findall(rf"^sie_gateway_{name}\{{.*\}} (\S+)$", text, re.MULTILINE))


@contextmanager
def worker(folder: Path) -> Iterator[None]:
    """Start one by hand, as the command says."""
    shell = ". cluster/worker-1.env && exec sie worker --with-sidecar"
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with (folder / "worker.log").open("wb") as log:
        process = subprocess.Popen(
            ["sh", "-c", shell], cwd=folder, env={**os.environ, "PATH": path}, stdout=log, stderr=subprocess.STDOUT
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait(BOUND_S)
