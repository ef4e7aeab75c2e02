"""Proves the kernels at load: on probe sequences they give the states of the plain forward pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sie_cpu.checkpoint.settings import Settings
from sie_cpu.forward.batch import Ids

LENGTHS = (23, 7, 5, 5, 1)
"""Tokens of the probe sequences: beyond the windows of the proof, shorter, equal neighbours, a single token."""
EXPANSION = (4, 3, 0, 0, 0)
"""Tokens of each that nothing attends to, if a model has such tokens."""
SPECIALS = (-1, 0, 1, 3, 5, 9, 22, 24, 29, -3)
"""Places of special tokens in the probe, in turns: some models count them."""
BEYOND = 40
"""Tokens by which a sequence exceeds the distances that have separate rows in a table of positions."""
WINDOW = 8
"""Width of attention windows during the proof, so that short sequences reach beyond them."""
LEAST_COSINE = 0.9995
"""Least cosine between the mean state of a probe sequence and its value in the plain forward pass."""
TOLERANCE: Mapping[str, float] = {"float32": 1e-3, "bfloat16": 0.1}
"""Largest relative error of a token's states, by the precision computed in; as sie-pytorch asks of its runners."""
MOST_MOVED = 0.01
"""Bound on the change of a sigmoid's probability by half precision."""
MANY = 100
"""With fewer logits of probes, each may move a third as far."""


class ProofFailed(Exception):
    """The kernels give other states than the plain forward pass; the message says how far off they are."""


@dataclass(frozen=True, slots=True)
class Probe:
    """One packed batch."""

    ids: Ids
    positions: Ids
    types: Ids | None
    offsets: Ids
    keys: Ids | None = None

    def with_expansion(self) -> Probe:
        """Let nothing attend to the last tokens of some sequences."""
        keys = np.diff(self.offsets)
        keys[: len(EXPANSION)] -= np.array(EXPANSION)
        return replace(self, keys=np.maximum(keys, 1))


def make_probe(settings: Settings, vocabulary: int, types: int, limit: int | None) -> Probe:
    """Draw random token ids and types from a fixed seed, with special tokens among the ids.

    Args:
        settings: The model's.
        vocabulary: Rows of its table of tokens.
        types: Rows of its table of types; 0 for none.
        limit: Tokens that its positions allow.
    """
    buckets = int(settings.config.get("position_buckets") or 0) if settings.row.disentangled else 0
    bias = settings.row.bias
    farthest = buckets // 2 if bias is None else bias.farthest
    if isinstance(farthest, str):
        farthest = int(settings.config.get(farthest, 128))
    wanted = (*LENGTHS, farthest + BEYOND) if farthest > 0 else LENGTHS
    lengths = np.array([min(length, limit or length) for length in wanted])
    random = np.random.default_rng(0)
    offsets = np.concatenate([[0], lengths.cumsum()]).astype(np.int64)
    ids = random.integers(vocabulary, size=int(offsets[-1]))
    named = (value for name, value in settings.config.items() if name.endswith("_token_id"))
    special = sorted({each for each in named if type(each) is int and 0 <= each < vocabulary})
    ids[np.isin(ids, special)] = next((number for number in range(vocabulary) if number not in special), 0)
    for turn, place in enumerate(SPECIALS if special else ()):
        if -len(ids) <= place < len(ids):
            ids[place] = special[turn % len(special)]
    positions = np.concatenate([np.arange(length) for length in lengths])
    return Probe(ids, positions, random.integers(types, size=len(ids)) if types > 1 else None, offsets)


def require_equal(states: NDArray[Any], expected: NDArray[Any], probe: Probe, precision: str) -> None:
    """Compare the kernels' states with the plain ones.

    Raises:
        ProofFailed: They differ by more than the precision explains.
    """
    error = np.linalg.norm(states - expected, axis=1) / np.maximum(np.linalg.norm(expected, axis=1), 1e-12)
    worst = float(error.max())
    if not worst <= TOLERANCE[precision]:
        filled = "" if probe.keys is None else ", where nothing attends to some tokens,"
        raise ProofFailed(f"in {precision} its states differ from those of a plain forward pass{filled} by {worst:.1e}")
    spans = [slice(start, stop) for start, stop in pairwise(probe.offsets.tolist())]
    least = min(_cosine(states[span].mean(0, dtype=np.float64), expected[span].mean(0)) for span in spans)
    if precision != "float32" and not least >= LEAST_COSINE:
        raise ProofFailed(f"in {precision} its cosine to float32 falls to {least:.5f}")


def require_logits(logits: NDArray[Any], expected: NDArray[Any], precision: str) -> None:
    """Compare the logits of a head for the kernels' states with those for the plain ones.

    Raises:
        ProofFailed: Their probabilities differ by more than `MOST_MOVED`.
    """
    known = np.isfinite(expected)
    moved = np.abs(_sigmoid(logits[known]) - _sigmoid(expected[known]))
    allowed = MOST_MOVED if len(moved) >= MANY else MOST_MOVED / 3
    most = float(moved.max()) if len(moved) else 0.0
    if not most <= allowed:
        raise ProofFailed(
            f"in {precision} its probabilities move by {most:.2g} in a probe, and {allowed:.2g} is allowed"
        )


def _cosine(one: NDArray[Any], other: NDArray[Any]) -> float:
    return float(one @ other / max(float(np.linalg.norm(one) * np.linalg.norm(other)), 1e-12))


def _sigmoid(logits: NDArray[Any]) -> NDArray[np.float64]:
    return 1 / (1 + np.exp(-np.clip(logits.astype(np.float64), -500, 500)))
