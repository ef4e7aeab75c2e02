"""The released wheel of sglang, downloaded once and without what it depends on: its sources are read, never run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock
from sie_sglang.claims import READ_AT

FOLDER = Path(__file__).parents[2] / ".envs"
DOWNLOAD_S = 300.0


def released_wheel() -> Path:
    """Return the wheel; skipped where it cannot be had."""
    folder = FOLDER / "sglang-wheel"
    FOLDER.mkdir(exist_ok=True)
    with FileLock(FOLDER / "sglang-wheel.lock"):
        if not (found := list(folder.glob(f"sglang-{READ_AT}-*.whl"))):
            asked = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--python-version", "3.11"]
            asked += ["--only-binary", ":all:", "-d", str(folder), f"sglang=={READ_AT}"]
            try:
                done = subprocess.run(asked, capture_output=True, timeout=DOWNLOAD_S, check=False)
            except subprocess.TimeoutExpired:
                pytest.skip(f"the wheel of sglang {READ_AT} did not come within {DOWNLOAD_S:g} s")
            found = list(folder.glob("*.whl"))
            if not found:
                pytest.skip(f"the wheel of sglang {READ_AT} cannot be had: {done.stderr.decode()[-300:]}")
    return found[0]
