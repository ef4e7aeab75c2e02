"""Attention within packed sequences against the plain formula, for every mask, grouping and length."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from sie_pytorch.forward.layout import WINDOW_BLOCK, PackedLayout, Run, runs_of

LENGTHS = (5, 5, 1, 3 * WINDOW_BLOCK + 7, 12, 12, 12)


def plain_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, causal: bool, window: int | None, scale: float
) -> torch.Tensor:
    """Compute one sequence, `[heads, length, size]`, in float64, with the mask spelled out."""
    groups = query.shape[0] // key.shape[0]
    key, value = key.repeat_interleave(groups, dim=0), value.repeat_interleave(groups, dim=0)
    i, j = torch.arange(query.shape[1])[:, None], torch.arange(query.shape[1])
    seen = torch.ones(len(i), len(j), dtype=torch.bool)
    if causal:
        seen &= j <= i
    if window is not None:
        seen &= (i - j).abs() < window
    scores = (query @ key.transpose(1, 2) * scale).masked_fill(~seen, float("-inf"))
    return scores.softmax(-1) @ value


@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [None, 1, 7, WINDOW_BLOCK + 3, 10_000])
@pytest.mark.parametrize("key_heads", [4, 2])
def test_each_token_attends_within_its_own_sequence(
    eager: bool, causal: bool, window: int | None, key_heads: int
) -> None:
    generator = torch.Generator().manual_seed(3)
    total = sum(LENGTHS)
    query, key, value = (
        torch.randn(1, total, heads, 8, generator=generator).transpose(1, 2) for heads in (4, key_heads, key_heads)
    )
    bounds = torch.tensor([0, *LENGTHS]).cumsum(0)
    layout = PackedLayout(runs_of(bounds), eager=eager)
    packed = layout.attend(query, key, value, causal=causal, window=window, scale=0.3)
    assert packed.shape == (1, total, 4, 8)
    for start, stop in pairwise(bounds.tolist()):
        one = (states[0, :, start:stop].double() for states in (query, key, value))
        expected = plain_attention(*one, causal, window, 0.3).transpose(0, 1)
        torch.testing.assert_close(packed[0, start:stop].double(), expected, rtol=0, atol=1e-5)


def test_equal_neighbours_share_a_run() -> None:
    bounds = torch.tensor([0, *LENGTHS]).cumsum(0)
    runs = runs_of(bounds)
    assert [(run.count, run.length) for run in runs] == [(2, 5), (1, 1), (1, LENGTHS[3]), (3, 12)]
    assert runs[-1].stop == sum(LENGTHS)
    assert runs_of(torch.tensor([0, 4])) == (Run(0, 1, 4),)


def test_an_empty_sequence_is_refused() -> None:
    with pytest.raises(ValueError, match="must rise"):
        runs_of(torch.tensor([0, 3, 3]))
