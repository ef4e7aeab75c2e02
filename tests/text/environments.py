"""Environments without torch, with transformers 4, 5 and none, built once below the repository."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock

HOME = Path(__file__).parents[2] / ".envs"
BASE = ("numpy", "tokenizers>=0.21", "safetensors", "msgpack", "orjson", "httpx")
TRANSFORMERS = {"none": (), "4": ("transformers==4.57.6",), "5": ("transformers==5.23.0",)}


def text_environment(name: str) -> Path:
    """Build an environment once below the repository; a registry that cannot be reached is a skip that says so."""
    folder, needs = HOME / f"text-{name}", (*BASE, *TRANSFORMERS[name])
    stamp, digest = folder / ".requirements", hashlib.sha256(repr(needs).encode()).hexdigest()
    HOME.mkdir(exist_ok=True)
    with FileLock(HOME / f"text-{name}.lock"):
        if not stamp.exists() or stamp.read_text() != digest:
            shutil.rmtree(folder, ignore_errors=True)
            run = [[sys.executable, "-m", "venv", "--without-pip", str(folder)]]
            pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin/python")]
            run.append([*pip, "install", "-q", "--no-compile", *needs])
            for command in run:
                done = subprocess.run(command, capture_output=True, text=True, timeout=500)
                if done.returncode:
                    last = (done.stderr.strip().splitlines() or ["no word of why"])[-1]
                    pytest.skip(f"the environment text-{name} cannot be built: {last}")
            stamp.write_text(digest)
    return folder / "bin/python"
