"""Talks to gliner in the process that has it."""

from __future__ import annotations

import json
import subprocess
import sys
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sie_core.contracts import NoReferenceError

WORKER = Path(__file__).with_name("worker.py")
REMEDY = (
    "it asks for another transformers than SIE runs on, and so for an environment of its own: python -m venv gliner "
    "&& gliner/bin/pip install gliner==0.2.29; then name its Python: SIE_GLINER_PYTHON=gliner/bin/python"
)


class GlinerProcess:
    """gliner with a checkpoint loaded, until the object is gone."""

    def __init__(self, folder: Path, python: Path | None) -> None:
        """Start it and wait until the checkpoint is loaded.

        Args:
            folder: The checkpoint.
            python: The interpreter of an environment with gliner; None for this one, if it has gliner.

        Raises:
            NoReferenceError: There is no such interpreter, or it cannot load the checkpoint.
        """
        if python is None and find_spec("gliner") is None:
            raise NoReferenceError(f"is not installed here: {REMEDY}")
        command = [str(python or sys.executable), "-I", str(WORKER), str(folder)]
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
            )
        except OSError as error:
            raise NoReferenceError(f"cannot run: {python} is no Python ({error.strerror})") from error
        weakref.finalize(self, _end, self._process)
        self._answer("cannot load the checkpoint")

    def infer(self, texts: Sequence[str], labels: Sequence[str], options: Mapping[str, Any]) -> list[Any]:
        """Return the entities and relations of each text, as gliner finds them for the text alone.

        Raises:
            NoReferenceError: It ended.
        """
        assert self._process.stdin is not None
        asked = {"texts": list(texts), "labels": list(labels), "options": dict(options)}
        with suppress(BrokenPipeError):  # it ended, which appears when its answer is read
            print(json.dumps(asked), file=self._process.stdin, flush=True)
        found: list[Any] = self._answer("cannot answer")
        return found

    def _answer(self, failure: str) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise NoReferenceError(f"{failure}: its process ended with {self._process.wait()}; see the log")
        return json.loads(line)


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    process.wait()
