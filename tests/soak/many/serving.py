"""A server under a memory limit, and what the kernel says of its memory."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.conftest import Server

WAIT_S = 100.0
V1, V2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")


def resident(server: Server, row: str = "VmRSS") -> int:
    """Return the bytes the server's process has in memory; `VmHWM` for the most it ever had."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return 1024 * int(re.search(rf"{row}:\s+(\d+) kB", status)[1])  # type: ignore[index]


def models(url: str) -> dict[str, dict[str, object]]:
    """Read `/v1/models`, by name."""
    return {model["name"]: model for model in httpx.get(f"{url}/v1/models", timeout=60).json()["models"]}


def metric(url: str, name: str) -> float:
    """Add up the samples of a metric over its labels."""
    rows = httpx.get(f"{url}/metrics", timeout=60).text.splitlines()
    return sum(float(row.split()[-1]) for row in rows if re.match(rf"{name}[{{ ]", row))


def until(condition: Callable[[], object], what: str) -> None:
    """Wait until `condition` holds."""
    end = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end, f"{what} did not happen in {WAIT_S:.0f} s"
        time.sleep(0.05)


@contextmanager
def memory_group(limit: int) -> Iterator[Path | None]:
    """Make a memory cgroup with a limit, v1 or v2, below the process's own; None where that is not allowed."""
    folder = _own_group()
    group = folder / f"sie-{os.getpid()}" if folder else None
    try:
        if group is not None:
            group.mkdir(exist_ok=True)
            name = "memory.limit_in_bytes" if (group / "memory.limit_in_bytes").exists() else "memory.max"
            (group / name).write_text(str(limit))
    except OSError:
        group = None
    try:
        yield group
    finally:
        if group is not None:
            until(lambda: _removed(group), f"the end of {group}")


def _own_group() -> Path | None:
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        number, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return next((each for each in (V1 / path.lstrip("/"), V1) if each.is_dir()), None)
        if number == "0" and (V2 / "cgroup.controllers").exists():
            return next((each for each in (V2 / path.lstrip("/"), V2) if each.is_dir()), None)
    return None


def _removed(group: Path) -> bool:
    try:
        group.rmdir()
    except OSError:
        return False
    return True
