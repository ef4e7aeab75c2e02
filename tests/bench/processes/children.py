"""Asks a module of the bench a question in a process of its own: JSON in, JSON out."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.bench.processes.environments import ROOT
from tests.bench.processes.threads import environment

LIMIT_S = 1800.0


def ask(
    module: str,
    job: Mapping[str, Any],
    threads: int,
    python: str | Path = sys.executable,
    variables: Mapping[str, str] | None = None,
) -> Any:
    """Run `python -m tests.bench.without_server.<module>` on a job and return its answer.

    A module of another folder is named with it; `variables` add to its environment.

    Raises:
        subprocess.CalledProcessError: It failed.
        subprocess.TimeoutExpired: It took longer than `LIMIT_S` seconds.
    """
    place = module if "." in module else f"without_server.{module}"
    ran = subprocess.run(
        [str(python), "-m", f"tests.bench.{place}"],
        input=json.dumps(job), text=True, stdout=subprocess.PIPE,
        check=True, timeout=LIMIT_S, cwd=ROOT, env=environment(threads, **(variables or {})),
    )  # fmt: skip
    return json.loads(ran.stdout.splitlines()[-1])


def read_job() -> dict[str, Any]:
    """Read the job, in the child."""
    job: dict[str, Any] = json.loads(sys.stdin.read())
    return job


def answer(value: Any) -> None:
    """Write the answer, in the child."""
    print(json.dumps(value))
