"""Checkpoints of images and texts, written once a session; tests must not write to them."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from sie_core.contracts import Adapter
from tests.pytorch.vision.support import WRITERS, serve


@pytest.fixture(scope="session")
def vision(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Give the folder of a tiny checkpoint by its kind."""
    return cache(lambda kind: WRITERS[kind](tmp_path_factory.mktemp(kind)))


@pytest.fixture(scope="session")
def served(vision: Callable[[str], Path]) -> Callable[[str], Adapter]:
    """Give a loaded model by its kind."""
    return cache(lambda kind: serve(vision(kind)))
