"""gliner itself, in an environment of its own: it asks for another transformers than the one here.

The environment is built once below `.envs`, and the process started once; where that fails, tests are skipped.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from filelock import FileLock

from tests.bench.operations.talking import Child, speaking
from tests.bench.processes.environments import ENVIRONMENTS, GLINER


class Library:
    """A process that has gliner."""

    def __init__(self, child: Child) -> None:
        self._child = child

    def write(self, folder: Path, kind: str, encoder: str = "bert", **config: Any) -> Path:
        """Have a tiny checkpoint written; see `tests.gliner.checkpoints.write_checkpoint`."""
        return Path(self._ask("write", folder=str(folder), kind=kind, encoder=encoder, config=config))

    def train(self, folder: Path) -> Path:
        """Have a checkpoint trained that finds what `plant` plants."""
        return Path(self._ask("train", folder=str(folder)))

    def entities(self, folder: Path, text: str, labels: Sequence[str], **choice: Any) -> list[dict[str, Any]]:
        """Give the entities of a text."""
        return self.relations(folder, text, labels, **choice)[0]

    def relations(
        self, folder: Path, text: str, labels: Sequence[str], **choice: Any
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Give the entities and relations of a text."""
        ((entities, relations),) = self._ask("infer", folder=str(folder), texts=[text], labels=list(labels), **choice)
        return entities, relations

    def logits(
        self, folder: Path, words: Sequence[Sequence[str]], labels: Sequence[str], relations: Sequence[str] = ()
    ) -> dict[str, np.ndarray]:
        """Give the logits of each row of words alone, in float64: `logits-0`, `span_logits-0`, `rel_logits-0`, …"""
        file = folder.parent / "logits.npz"
        asked = {"words": [list(row) for row in words], "labels": list(labels), "relations": list(relations)}
        self._ask("logits", folder=str(folder), save=str(file), **asked)
        with np.load(file) as arrays:
            return dict(arrays)

    def decode(self, decoder: str, words: int, classes: int, tensors: Mapping[str, Any], **choice: Any) -> list[Any]:
        """Give what the decoder of a `grid` or of `words` chooses: first and last word, class and score of each."""
        return [
            tuple(each)
            for each in self._ask(
                "decode",
                decoder=decoder,
                words=words,
                classes=classes,
                tensors={name: tensor.tolist() for name, tensor in tensors.items()},
                **choice,
            )
        ]

    def _ask(self, order: str, **arguments: Any) -> Any:
        answer, failure = self._child.ask(order=order, **arguments)
        assert failure is None, failure
        return answer


_processes = ExitStack()


@cache
def library() -> Library:
    """Give the process that has gliner; it ends with this one, whose end closes its input."""
    build()
    speaker = speaking("gliner_process", 1, package="tests.gliner", python=GLINER.program("python"))
    return Library(_processes.enter_context(speaker))


def build() -> Path:
    """Give the Python of gliner's environment."""
    if (failure := fault()) is not None:
        pytest.skip(f"gliner's environment cannot be built: {failure}")
    return GLINER.program("python")


@cache
def fault() -> str | None:
    """Build gliner's environment; return why it cannot be."""
    ENVIRONMENTS.mkdir(exist_ok=True)
    try:
        with FileLock(ENVIRONMENTS / f"{GLINER.name}.lock"):
            GLINER.build()
    except (subprocess.CalledProcessError, OSError) as error:
        return str(error)
    return None
