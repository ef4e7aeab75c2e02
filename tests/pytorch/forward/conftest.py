"""Runners of the tiny checkpoints, built once a session."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch
from sie_pytorch.forward import BuiltRunner

from tests.pytorch.forward.support import batch_for, build, padded_states, reference_model


@pytest.fixture(scope="session")
def runner(checkpoint: Callable[[str], Path]) -> Callable[[str], BuiltRunner]:
    """Give the runner that `build_runner` chose for an architecture."""
    return cache(lambda name: build(checkpoint(name)))


@pytest.fixture(scope="session")
def padded(checkpoint: Callable[[str], Path]) -> Callable[[str, str], torch.Tensor]:
    """Give the states of an architecture's batch from transformers' own model, padded, by its attention backend."""

    def states(name: str, attention: str) -> torch.Tensor:
        return padded_states(reference_model(name, checkpoint(name), attention), batch_for(name))

    return cache(states)
