"""What the runner tests share: packed batches, transformers' own answers, and the measure that compares them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import transformers as tf
from sie_pytorch.forward import Batch, BuiltRunner, LowRank, RunnerContext, build_runner
from sie_pytorch.forward.specs import RUNNERS
from sie_text.architectures import Feature

from sie_core.contracts import Device, ModelCard, RunnerSpec
from tests.pytorch.models import ARCHITECTURES, POSITIONS, VOCABULARY

LOOPED = frozenset(Feature) - {Feature.DISENTANGLED, Feature.RELATIVE_BIAS}
"""The features of loops that are made, or registered, by tests."""
PACKED = tuple(row for row in RUNNERS if row.name == "packed")
"""The packed runner alone, whatever faster ones are registered beside it."""
TOLERANCE = 1e-4
"""Of the standard deviation of the reference's states."""
SHORT = (30, 1, 9, 9, POSITIONS - 6, 2, 17)
LONG = (300, 40, 1, 9, 9, 2)
"""Lengths of the test batches: every one has sequences longer than every window; LONG where positions allow it."""


@dataclass(frozen=True, eq=False)
class PackedBatch(Batch):
    @property
    def places(self) -> list[slice]:
        return list(self.spans())

    def one(self, place: slice) -> PackedBatch:
        types = None if self.types is None else self.types[place]
        keys = None if self.key_lengths is None else self.key_lengths[[self.places.index(place)]]
        bounds = torch.tensor([0, place.stop - place.start])
        return PackedBatch(self.ids[place], self.positions[place], bounds, types=types, key_lengths=keys)


def packed_batch(lengths: Sequence[int], *, types: int = 0, seed: int = 1) -> PackedBatch:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(5, VOCABULARY, (sum(lengths),), generator=generator)
    drawn = torch.randint(types, ids.shape, generator=generator) if types > 1 else None
    positions = torch.cat([torch.arange(length) for length in lengths])
    return PackedBatch(ids, positions, torch.tensor([0, *lengths]).cumsum(0), types=drawn)


def batch_for(name: str) -> PackedBatch:
    """Make the batch an architecture is tested with."""
    config = ARCHITECTURES[name].config()
    lengths = SHORT if getattr(config, "max_position_embeddings", 512) < max(LONG) else LONG
    takes_types = name not in {"distilbert", "modernbert", "mpnet"} and getattr(config, "type_vocab_size", 0) > 1
    return packed_batch(lengths, types=2 if takes_types else 0)


def with_expansion(batch: PackedBatch) -> PackedBatch:
    """Let nothing attend to the last third of every other sequence, beyond every window of the first tokens."""
    lengths = batch.cu_seqlens.diff()
    return replace(batch, key_lengths=lengths - lengths // 3 * (torch.arange(len(lengths)) % 2 == 0))


def build(folder: Path, runner_specs: Sequence[RunnerSpec] = PACKED, **arguments: Any) -> BuiltRunner:
    card = ModelCard(folder, json.loads((folder / "config.json").read_text()))
    arguments = {"precision": "float32", **arguments}
    return build_runner(folder, card, Device("cpu"), runner_specs=runner_specs, **arguments)


def load_of(model: Any, folder: Path, dtype: torch.dtype = torch.float32) -> RunnerContext:
    """Make what a loop is made of, on the device of `model`."""
    return RunnerContext(
        model,
        folder,
        ModelCard(folder, {}),
        device=model.device,
        dtype=dtype,
        attention_backend="auto",
        threads=1,
        features=LOOPED,
    )


def forward(runner: Any, batch: PackedBatch, low_rank: LowRank | None = None) -> torch.Tensor:
    return runner.forward(replace(batch, low_rank=low_rank))


def reference_model(name: str, folder: Path, attention: str = "eager") -> Any:
    """Load transformers' own model, as anyone would."""
    architecture = ARCHITECTURES[name]
    loader = getattr(tf, architecture.model) if architecture.model else tf.AutoModel
    return loader.from_pretrained(folder, attn_implementation=attention).eval()


@torch.inference_mode()
def padded_states(model: Any, batch: PackedBatch) -> torch.Tensor:
    """Run the batch padded to the right with an attention mask, and lay the states of its tokens out flat."""
    pad = model.config.pad_token_id or 0
    rows = [batch.ids[place] for place in batch.places]
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=pad)
    real = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
    seen = batch.cu_seqlens.diff() if batch.key_lengths is None else batch.key_lengths
    arguments = {"input_ids": ids, "attention_mask": (torch.arange(ids.shape[1]) < seen[:, None]).long()}
    if batch.types is not None:
        types = [batch.types[place] for place in batch.places]
        arguments["token_type_ids"] = torch.nn.utils.rnn.pad_sequence(types, batch_first=True)
    return model(**arguments).last_hidden_state[real.bool()]


def deviation(states: torch.Tensor, expected: torch.Tensor) -> float:
    """Measure the largest difference in standard deviations of what is expected."""
    assert states.shape == expected.shape
    return float((states - expected).abs().max() / expected.std())
