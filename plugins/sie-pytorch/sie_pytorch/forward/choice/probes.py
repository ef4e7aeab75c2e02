"""Packed batches of random ids, the same at every load, on which runners are proved and timed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from sie_text.sequences import PackedBatch

from sie_pytorch.forward.checkpoint.reading import forward_arguments
from sie_pytorch.forward.longrope import longrope_parameters, set_original_length
from sie_pytorch.forward.protocol import Batch

PROBE_LENGTHS = (41, 7, 24, 24, 1, 3)
"""Tokens of the probe sequences: longer than the windows of the proof, shorter, equal neighbours, a single token."""
PROBE_SPECIALS = (-1, 0, 1, 3, 5, 9, 10, 19, 38, 40, 41, 42, 44, 47, -3)
"""Places of special tokens in the probe sequences, in turns: at the start, the end and inside, adjacent ones, and
several in one sequence, because some models count them.
"""
PROBE_EXPANSION = (4, 3, 4, 0, 0, 1)
"""Number of tokens that no token attends to, if a model has such tokens; few enough that each sees one in a window."""
PROBE_BEYOND = 40
"""Tokens by which a sequence exceeds the distances that have separate rows in a position table."""
DISTANCE = 128
"""Distance from which all share a bias, if a config states none: MPNet's."""
PROBE_WINDOW = 16
"""Width of attention windows during the proof, so that short probes reach beyond them."""
WINDOWS = ("sliding_window", "attention_chunk_size")
"""Fields of a config that bound a token's attention: by distance, or by the chunk it is in."""


def batch_of(batch: PackedBatch, gives_types: bool, device: torch.device) -> Batch:
    """Bring a batch to the device, with its token types or without."""
    parts = [batch.ids, batch.positions, *([batch.types] if gives_types else [])]
    ids, positions, *types = (torch.from_numpy(part).to(device) for part in parts)
    return Batch(ids, positions, torch.from_numpy(batch.cu_seqlens), types=types[0] if types else None)


def make_probe(model: Any, limit: int | None, device: torch.device, sequences: Sequence[int] = ()) -> Batch:
    """Draw random token ids and token types from a fixed seed, with special tokens among the ids.

    Args:
        model: transformers' base model.
        limit: Tokens that the model's positions allow; longer sequences are cut to it.
        device: Device of the ids.
        sequences: Tokens of each sequence; empty means those of the proof.
    """
    config = model.config
    lengths = [min(length, limit or length) for length in sequences or _proof_lengths(config)]
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(config.vocab_size, (sum(lengths),), generator=generator)
    specials = special_tokens(config)
    ordinary = next((number for number in range(config.vocab_size) if number not in specials), 0)
    ids[torch.isin(ids, torch.tensor(specials, dtype=ids.dtype))] = ordinary
    for turn, place in enumerate(PROBE_SPECIALS if specials else ()):
        if -len(ids) <= place < len(ids):
            ids[place] = specials[turn % len(specials)]
    types = token_types(model)
    kinds = None
    if types > 1:
        kinds = torch.randint(types, ids.shape, generator=generator).to(device)
    positions = torch.cat([torch.arange(length) for length in lengths])
    cu_seqlens = torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()], dtype=torch.int32)
    return Batch(ids.to(device), positions.to(device), cu_seqlens, types=kinds)


def _proof_lengths(config: Any) -> tuple[int, ...]:
    """List the lengths of the proof; one more if far distances share a row of a table: of DeBERTa, or of biases."""
    buckets, biased = getattr(config, "position_buckets", 0), hasattr(config, "relative_attention_num_buckets")
    nearer = buckets // 2 if isinstance(buckets, int) and buckets > 0 else 0
    farthest = getattr(config, "relative_attention_max_distance", DISTANCE) if biased else nearer
    return (*PROBE_LENGTHS, farthest + PROBE_BEYOND) if farthest else PROBE_LENGTHS


def special_tokens(config: Any) -> list[int]:
    """List the special token ids that a config names, padding first: no other ids have a meaning for a model."""
    named = {name: value for name, value in config.to_dict().items() if name.endswith("_token_id")}
    ids = [named.pop("pad_token_id", None), *named.values()]
    return list(dict.fromkeys(each for each in ids if isinstance(each, int) and 0 <= each < config.vocab_size))


def token_types(model: Any) -> int:
    """Return how many token types the class distinguishes: 2 if it takes some and its config states no number."""
    if "token_type_ids" not in forward_arguments(model):
        return 0
    return getattr(model.config, "type_vocab_size", 2) or 0


def fill_up(probe: Batch) -> Batch:
    """Let nothing attend to the last tokens of some of the probe sequences."""
    lengths = probe.cu_seqlens.diff().long()
    seen = lengths.clone()
    seen[: len(PROBE_EXPANSION)] -= torch.tensor(PROBE_EXPANSION)
    return replace(probe, key_lengths=seen.clamp(min=1))


@contextmanager
def narrow_windows(model: Any) -> Iterator[None]:
    """Narrow every attention window and chunk of `model` to `PROBE_WINDOW` inside the block; only wider ones change.

    Layers and config hold the window under the same name; if a layer counts it differently (one more than its config,
    as in ModernBERT), the difference is kept. The length from which a model has other frequencies is narrowed too.
    """
    changes = []
    rope = longrope_parameters(model)
    for name in WINDOWS:
        width = getattr(model.config, name, None)
        if isinstance(width, int) and width > PROBE_WINDOW:
            layers = [layer for layer in model.modules() if isinstance(getattr(layer, name, None), int)]
            changes += [(holder, name, PROBE_WINDOW - width) for holder in (model.config, *layers)]
    for holder, name, change in changes:
        setattr(holder, name, getattr(holder, name) + change)
    bound = None if rope is None else set_original_length(model, rope, PROBE_WINDOW)
    try:
        yield
    finally:
        if rope is not None and bound is not None:
            set_original_length(model, rope, bound)
        for holder, name, change in changes:
            setattr(holder, name, getattr(holder, name) - change)
