"""Checkpoints for the tests of sie-gliner, written once a session."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.gliner.library import library
from tests.gliner.loading import load

Checkpoint = Callable[..., Path]


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """Give the folder of a tiny checkpoint by its kind and encoder; tests must not write to it."""
    return cache(lambda kind, encoder="bert": library().write(tmp_path_factory.mktemp(kind), kind, encoder))


@pytest.fixture(scope="session")
def extractor(trained: Path) -> Any:
    """That checkpoint, loaded."""
    return load(trained)
