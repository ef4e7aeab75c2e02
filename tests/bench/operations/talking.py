"""A child that lives and answers one line after another: JSON in, JSON out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from tests.bench.processes.environments import ROOT
from tests.bench.processes.threads import environment

LIMIT_S = 300.0
"""For one answer; a child that needs longer is killed."""


class SilentError(Exception):
    """A child ended, or did not answer in time."""


@dataclass(slots=True)
class Child:
    """A process of `python -m <module>` that is spoken to."""

    module: str
    _process: subprocess.Popen[str]

    def tell(self, **order: Any) -> None:
        """Send an order without waiting for its answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()

    def hear(self) -> Any:
        """Wait for the answer to the last order.

        Raises:
            SilentError: There is none; the child's own error is on stderr.
        """
        assert self._process.stdout is not None
        watch = threading.Timer(LIMIT_S, self._process.kill)
        watch.start()
        try:
            line = self._process.stdout.readline()
        finally:
            watch.cancel()
        if not line:
            raise SilentError(f"{self.module} ended, or was silent for {LIMIT_S:.0f} s.")
        return json.loads(line)

    def ask(self, **order: Any) -> Any:
        """Send an order and wait for its answer.

        Raises:
            SilentError: There is none.
        """
        self.tell(**order)
        return self.hear()


@contextmanager
def speaking(
    module: str,
    threads: int,
    variables: Mapping[str, str] | None = None,
    package: str = "tests.bench",
    python: str | Path = sys.executable,
) -> Iterator[Child]:
    """Start `python -m <package>.<module>`, and end it at the end."""
    name = f"{package}.{module}"
    process = subprocess.Popen(
        [str(python), "-m", name], cwd=ROOT, env=environment(threads, **(variables or {})),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        yield Child(name, process)
    finally:
        process.kill()
        process.communicate()


class Orders:
    """The child's end. What libraries print goes to stderr; only answers go to the parent."""

    def __init__(self) -> None:
        self._out: TextIO = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        while line := sys.stdin.readline():
            yield json.loads(line)

    def answer(self, value: Any) -> None:
        """Answer the last order."""
        self._out.write(json.dumps(value) + "\n")
        self._out.flush()
