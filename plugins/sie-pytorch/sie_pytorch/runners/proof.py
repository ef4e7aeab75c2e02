"""Proof at load: a runner's states over a packed batch equal each sequence alone through the model's own forward pass.

It knows runners by their interface only, and judges by numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch

from sie_pytorch.runners.checkpoint import forward_arguments
from sie_pytorch.runners.layout import seen_tokens
from sie_pytorch.runners.precision import least_cosine
from sie_pytorch.runners.protocol import Runner, RunnerUnfitError
from sie_pytorch.runners.two_parts import move_bound, two_sets

PROBE_LENGTHS = (41, 7, 24, 24, 1, 3)
"""Tokens of the probe sequences: longer than the windows of the proof, shorter, equal neighbours, a single token."""
PROBE_SPECIALS = (-1, 0, 1, 3, 5, 9, 10, 19, 38, 40, 41, 42, 44, 47, -3)
"""Where special tokens stand, by turns, in the probe: at the start, the end and inside of sequences, one after another,
and in some sequences more often than in others: some models count them."""
PROBE_FILLING = (4, 3, 4, 0, 0, 1)
"""How many of them nothing attends to, where a model has such tokens; few enough that each sees one in a window."""
PROBE_WINDOW = 16
"""What windows are narrowed to while a runner proves itself, so that short probes reach beyond them."""
WINDOWS = ("sliding_window", "attention_chunk_size")
"""The fields of a config that bound how far a token sees: by its distance, or to the end of the chunk it stands in."""
TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.1, torch.float16: 0.05}
"""Largest relative error of a token's states, by the precision computed in."""


@dataclass(frozen=True, slots=True)
class Probe:
    """One packed batch, in the arguments of `Runner.forward`."""

    ids: torch.Tensor
    positions: torch.Tensor
    segment_ids: torch.Tensor | None
    cu_seqlens: torch.Tensor
    key_lengths: torch.Tensor | None = None

    def sequences(self) -> Iterator[slice]:
        """Give the place of each sequence."""
        bounds = self.cu_seqlens.tolist()
        return (slice(start, stop) for start, stop in pairwise(bounds))


@dataclass(frozen=True, slots=True)
class Proof:
    """What a runner's states on the probe have in common with those of the model itself, sequence by sequence alone."""

    error: float
    """The largest relative error of a token."""
    cosine: float
    """The least cosine between the mean states of a sequence."""


def make_probe(model: Any, limit: int | None, device: torch.device) -> Probe:
    """Draw random token ids and token types for the probe sequences, always the same, special tokens among the ids."""
    config = model.config
    lengths = [min(length, limit or length) for length in PROBE_LENGTHS]
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(config.vocab_size, (sum(lengths),), generator=generator)
    specials = special_tokens(config)
    ordinary = next((number for number in range(config.vocab_size) if number not in specials), 0)
    ids[torch.isin(ids, torch.tensor(specials, dtype=ids.dtype))] = ordinary
    for turn, place in enumerate(PROBE_SPECIALS if specials else ()):
        if -len(ids) <= place < len(ids):
            ids[place] = specials[turn % len(specials)]
    types = token_types(model)
    segments = None
    if types > 1:
        segments = torch.randint(types, ids.shape, generator=generator).to(device)
    positions = torch.cat([torch.arange(length) for length in lengths])
    cu_seqlens = torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()], dtype=torch.int32)
    return Probe(ids.to(device), positions.to(device), segments, cu_seqlens)


def special_tokens(config: Any) -> list[int]:
    """List the ids a config names as special tokens, padding first: no other ids can mean anything to a model."""
    named = {name: value for name, value in config.to_dict().items() if name.endswith("_token_id")}
    ids = [named.pop("pad_token_id", None), *named.values()]
    return list(dict.fromkeys(each for each in ids if isinstance(each, int) and 0 <= each < config.vocab_size))


def token_types(model: Any) -> int:
    """Say how many token types the class tells apart: 2 where it takes some and its config states no number."""
    if "token_type_ids" not in forward_arguments(model):
        return 0
    return getattr(model.config, "type_vocab_size", 2) or 0


def fill_up(probe: Probe) -> Probe:
    """Let nothing attend to the last tokens of some of the probe sequences."""
    lengths = probe.cu_seqlens.diff().long()
    return replace(probe, key_lengths=(lengths - torch.tensor(PROBE_FILLING)).clamp(min=1))


def states_alone(model: Any, probe: Probe) -> torch.Tensor:
    """Run each probe sequence alone through the model's own forward pass: `[total_tokens, hidden]`."""
    lengths = probe.cu_seqlens.diff() if probe.key_lengths is None else probe.key_lengths
    seen = seen_tokens(probe.cu_seqlens, lengths).to(probe.ids.device)
    # Without a mask some classes take a padding token for padding, though a text spelled it out.
    masked = probe.key_lengths is not None or "attention_mask" in forward_arguments(model)
    parts = []
    for place in probe.sequences():
        arguments = {"input_ids": probe.ids[place][None]}
        if masked:
            arguments["attention_mask"] = seen[place][None].long()
        if probe.segment_ids is not None:
            arguments["token_type_ids"] = probe.segment_ids[place][None]
        parts.append(model(**arguments).last_hidden_state[0])
    return torch.cat(parts)


def prove(runner: Runner, probe: Probe, expected: torch.Tensor, dtype: torch.dtype) -> Proof:
    """Compare `runner`, which computes in `dtype`, over the packed probe with `expected`.

    Raises:
        RunnerUnfitError: The error is beyond the precision's tolerance.
    """
    arguments, filled = (probe.ids, probe.positions, probe.segment_ids, probe.cu_seqlens), ""
    if probe.key_lengths is None:
        states = runner.forward(*arguments)
    else:
        states = runner.forward(*arguments, key_lengths=probe.key_lengths)
        filled = " where nothing attends to its last tokens"
    error = relative_error(states, expected)
    if not error <= TOLERANCE[dtype]:
        raise RunnerUnfitError(f"its states differ from each sequence alone{filled} by {error:.1e}")
    return Proof(error, least_cosine(states, expected, [place.stop - place.start for place in probe.sequences()]))


def relative_error(states: torch.Tensor, expected: torch.Tensor) -> float:
    """Measure the largest ‖states - expected‖ / ‖expected‖ of a token; NaN where either holds one."""
    difference = (states.double() - expected.double()).norm(dim=-1)
    return float((difference / expected.double().norm(dim=-1).clamp(min=1e-12)).max())


@contextmanager
def narrow_windows(model: Any) -> Iterator[None]:
    """Narrow every attention window and chunk of `model` to `PROBE_WINDOW` for the while; wider ones alone are touched.

    Layers and config hold one under the same name; where a layer counts it from another end (one more than its config,
    as in ModernBERT) the difference is kept. So is the length narrowed from which a model has other frequencies.
    """
    changes = []
    rope = two_sets(model)
    for name in WINDOWS:
        width = getattr(model.config, name, None)
        if isinstance(width, int) and width > PROBE_WINDOW:
            layers = [layer for layer in model.modules() if isinstance(getattr(layer, name, None), int)]
            changes += [(holder, name, PROBE_WINDOW - width) for holder in (model.config, *layers)]
    for holder, name, change in changes:
        setattr(holder, name, getattr(holder, name) + change)
    bound = None if rope is None else move_bound(model, rope, PROBE_WINDOW)
    try:
        yield
    finally:
        if rope is not None and bound is not None:
            move_bound(model, rope, bound)
        for holder, name, change in changes:
            setattr(holder, name, getattr(holder, name) - change)
