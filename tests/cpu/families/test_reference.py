"""The plain forward pass is transformers' own for every architecture of the table, and the kernels equal it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sie_cpu.checkpoint.model import Described
from sie_cpu.families.claims import FEATURES
from sie_cpu.forward.distances import RelativePositions
from sie_cpu.forward.embeddings import TokenEntry
from sie_cpu.forward.reference import reference_states
from sie_cpu.forward.running import CpuRunner
from sie_cpu.kernels import kernels_for
from sie_pytorch.forward import load_model

from sie_core.catalog import read_card
from tests.pytorch.conftest import checkpoint
from tests.pytorch.forward.support import batch_for, packed_batch, padded_states, reference_model
from tests.pytorch.models import described

__all__ = ["checkpoint"]

NAMES = [*described(FEATURES), "new"]


def reference(folder: Path) -> Any:
    """Load transformers' class of a checkpoint whose config it does not read itself."""
    return load_model(folder, torch.float32, torch.device("cpu"))


@pytest.mark.parametrize("name", NAMES)
def test_the_plain_forward_pass_is_that_of_transformers(name: str, checkpoint: Callable[[str], Path]) -> None:
    folder = checkpoint(name)
    batch = packed_batch((40, 7, 20), types=2) if name == "new" else batch_for(name)
    theirs = reference(folder) if name == "new" else reference_model(name, folder)
    expected = padded_states(theirs, batch).double().numpy()
    model = Described.read(read_card(folder), FEATURES)
    entry = TokenEntry(model)
    relative = RelativePositions(model) if model.settings.row.disentangled else None
    ids, positions, offsets = (each.numpy().astype(np.int64) for each in (batch.ids, batch.positions, batch.cu_seqlens))
    types = None if batch.segment_ids is None else batch.segment_ids.numpy()
    states = reference_states(model, entry, relative, ids, positions, types, offsets, model.settings.windows)
    assert np.abs(states - expected).max() <= 1e-4 * expected.std()


@pytest.mark.parametrize("name", NAMES)
def test_the_kernels_prove_themselves(name: str, checkpoint: Callable[[str], Path]) -> None:
    model = Described.read(read_card(checkpoint(name)), FEATURES)
    CpuRunner(model, kernels_for("float32"), 2).prove(expands_queries=not model.settings.row.disentangled, judge=None)
