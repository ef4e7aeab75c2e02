"""Environments without torch, with transformers 4, 5 and none, and others of tests, built once below the repository."""

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
    """Build that with a transformers of this name."""
    return built_environment(f"text-{name}", (*BASE, *TRANSFORMERS[name]))


def built_environment(name: str, needs: tuple[str, ...]) -> Path:
    """Build an environment once below the repository and return its Python.

    A registry that cannot be reached is a skip that says so.
    """
    folder = HOME / name
    stamp, digest = folder / ".requirements", hashlib.sha256(repr(needs).encode()).hexdigest()
    HOME.mkdir(exist_ok=True)
    with FileLock(HOME / f"{name}.lock"):
        if not stamp.exists() or stamp.read_text() != digest:
            shutil.rmtree(folder, ignore_errors=True)
            run = [[sys.executable, "-m", "venv", "--without-pip", str(folder)]]
            pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin/python")]
            run.append([*pip, "install", "-q", "--no-compile", *needs])
            for command in run:
                done = subprocess.run(command, capture_output=True, text=True, timeout=500)
                if done.returncode:
                    last = (done.stderr.strip().splitlines() or ["no word of why"])[-1]
                    pytest.skip(f"the environment {name} cannot be built: {last}")
            stamp.write_text(digest)
    return folder / "bin/python"
