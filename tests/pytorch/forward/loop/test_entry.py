"""Embeddings that are nothing but tables are told as such, and add up to what the model's own modules compute."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from sie_pytorch.forward import EncoderEntry

from tests.pytorch.forward.support import batch_for, reference_model
from tests.pytorch.models import LAYERS_OF


def entry_of(name: str, folder: Path) -> EncoderEntry:
    model = reference_model(name, folder)
    return EncoderEntry(model, LAYERS_OF[model.config.model_type])


@torch.inference_mode()
@pytest.mark.parametrize("name", ["bert", "roberta", "distilbert", "data2vec-text"])
def test_rows_of_its_tables_are_the_states_before_the_first_layer(name: str, checkpoint: Callable[[str], Path]) -> None:
    entry, batch = entry_of(name, checkpoint(name)), batch_for(name)
    tables = entry.tables()
    assert tables is not None
    types = torch.zeros_like(batch.ids) if batch.types is None else batch.types
    rows = tables.words[batch.ids]
    if tables.types is not None:
        rows = rows + tables.types[types]
    rows = rows + tables.positions[entry.position_ids(batch.ids, batch.positions)]
    states = F.layer_norm(rows, rows.shape[1:], tables.weight, tables.bias, tables.epsilon)
    expected, _ = entry(batch)
    assert torch.allclose(states, expected, rtol=0, atol=1e-6)


LEFT = {
    "electra": "a layer that widens narrow ones",
    "ernie": "a table of tasks",
    "deberta-v2": "a mask and relative positions",
    "modernbert": "rotary positions",
}


@pytest.mark.parametrize("name", LEFT, ids=LEFT.get)
def test_embeddings_with_more_than_tables_are_left_to_the_model(name: str, checkpoint: Callable[[str], Path]) -> None:
    assert entry_of(name, checkpoint(name)).tables() is None
