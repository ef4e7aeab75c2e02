"""What machine and which versions a run was on. It must not name the machine itself."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

from tests.bench.processes.environments import BETTERTRANSFORMER, INFINITY, ROOT, Environment

FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16")
OURS = ("torch", "transformers", "sentence-transformers", "gliner", "numpy", "uvicorn", "fastapi")


def describe(threads: int) -> dict[str, Any]:
    """Describe the machine and what is installed."""
    return {
        "cpu": _cpu("model name") or platform.processor(),
        "cpus": len(os.sched_getaffinity(0)),
        "threads": threads,
        "flags": [flag for flag in FLAGS if flag in _cpu("flags").split()],
        "memory_gb": round(psutil.virtual_memory().total / 1e9),
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "python": platform.python_version(),
        "commit": _commit(),
        "versions": {name: _version(name) for name in OURS},
        "environments": {each.name: list(each.requirements) for each in (INFINITY, BETTERTRANSFORMER) if _built(each)},
    }


def _cpu(field: str) -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(field)), "")


def _commit() -> str:
    ran = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return ran.stdout.strip()


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _built(environment: Environment) -> bool:
    return environment.program("python").exists()
