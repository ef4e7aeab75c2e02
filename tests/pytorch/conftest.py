"""Checkpoints for the tests of sie-pytorch, written once a session."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForMaskedLM

from tests.pytorch.models import write_checkpoint


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Give the folder of a tiny checkpoint by the name of its architecture; tests must not write to it."""
    return cache(lambda name: write_checkpoint(name, tmp_path_factory.mktemp(name)))


@pytest.fixture(scope="session")
def masked_language(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Give the folder of a tiny checkpoint with a masked-language-modelling head; tests must not write to it."""

    def write(name: str) -> Path:
        return write_checkpoint(name, tmp_path_factory.mktemp(f"{name}-mlm"), loader=AutoModelForMaskedLM)

    return cache(write)
