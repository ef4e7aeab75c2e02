"""The plain forward pass is transformers' own for every architecture of the table, and the kernels equal it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sie_cpu.checkpoint.forms import FORMS
from sie_cpu.checkpoint.model import Described
from sie_cpu.families.claims import FEATURES
from sie_cpu.forward.distances import RelativePositions, biases_of
from sie_cpu.forward.embeddings import TokenEntry
from sie_cpu.forward.reference import reference_states
from sie_cpu.forward.running import CpuRunner
from sie_cpu.kernels import kernels_for
from sie_pytorch.forward import load_model
from transformers.models.mpnet.modeling_mpnet import MPNetEncoder

from sie_core.catalog import read_card
from tests.pytorch.conftest import checkpoint
from tests.pytorch.forward.support import batch_for, packed_batch, padded_states, reference_model
from tests.pytorch.models import ARCHITECTURES, described

__all__ = ["checkpoint"]

NAMES = [*(name for name in described(FEATURES) if ARCHITECTURES[name].config().model_type in FORMS), "new"]


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
    types = None if batch.types is None else batch.types.numpy()
    states = reference_states(
        model, entry, relative, biases_of(model), ids, positions, types, offsets, model.settings.windows
    )
    assert np.abs(states - expected).max() <= 1e-4 * expected.std()


@pytest.mark.parametrize("name", NAMES)
def test_the_kernels_prove_themselves(name: str, checkpoint: Callable[[str], Path]) -> None:
    model = Described.read(read_card(checkpoint(name)), FEATURES)
    CpuRunner(model, kernels_for("float32"), 2).prove(expands_queries=not model.settings.row.disentangled, judge=None)


def test_the_bias_of_every_distance_is_that_of_transformers(checkpoint: Callable[[str], Path]) -> None:
    table = reference_model("mpnet", checkpoint("mpnet")).encoder.relative_attention_bias.weight.detach()
    distances = torch.arange(-300, 301)
    buckets = MPNetEncoder.relative_position_bucket(distances, num_buckets=len(table))
    found = biases_of(Described.read(read_card(checkpoint("mpnet")), FEATURES))
    assert found is not None
    farthest = found.shape[1] // 2
    assert np.array_equal(found[:, distances.numpy().clip(-farthest, farthest) + farthest], table[buckets].T.numpy())
