"""What the layout asks of a kernel, against the attention of the packed runner."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from sie_flash.layout import VarlenLayout, lay_out
from sie_pytorch.forward import Batch, RunnerUnfitError
from sie_pytorch.forward.layout import PackedLayout, runs_of
from sie_pytorch.forward.transfers import Transfers

from tests.flash.plain import PLAIN

LENGTHS = (5, 5, 1, 40, 12, 12, 23)
BOUNDS = torch.tensor([0, *LENGTHS]).cumsum(0)
CPU = Transfers(torch.device("cpu"))
KEYS = {
    "some see less": torch.tensor([5, 2, 1, 33, 12, 4, 23]),
    "one sees nothing": torch.tensor([5, 0, 1, 40, 3, 12, 23]),
    "all see all": torch.tensor(LENGTHS),
}


def states(*heads: int, size: int = 8, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    return [
        torch.randn(1, int(BOUNDS[-1]), each, size, generator=generator).to(dtype).transpose(1, 2) for each in heads
    ]


def layout(key_lengths: torch.Tensor | None = None) -> VarlenLayout:
    none = torch.empty(0, dtype=torch.int64)
    return lay_out(PLAIN, CPU, Batch(none, none, BOUNDS, key_lengths=key_lengths))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [None, 1, 2, 7, 39, 40, 41, 10_000])
@pytest.mark.parametrize("key_heads", [4, 2, 1])
@pytest.mark.parametrize("scale", [None, 0.7])
def test_a_kernel_is_asked_for_what_the_packed_runner_computes(
    causal: bool, window: int | None, key_heads: int, scale: float | None
) -> None:
    given = states(4, key_heads, key_heads)
    ours = layout().attend(*given, causal=causal, window=window, scale=scale)
    expected = PackedLayout(runs_of(BOUNDS)).attend(*given, causal=causal, window=window, scale=scale)
    assert ours.shape == (1, int(BOUNDS[-1]), 4, 8)
    assert ours.is_contiguous()
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-5)


def test_the_bounds_and_the_longest_sequence_are_those_of_the_batch() -> None:
    made = layout()
    assert made.bounds.cu_seqlens.dtype == torch.int32
    assert made.bounds.cu_seqlens.tolist() == BOUNDS.tolist()
    assert made.bounds.longest == max(LENGTHS)


def test_bounds_that_came_with_the_batch_are_not_sent_again() -> None:
    none, there = torch.empty(0, dtype=torch.int64), BOUNDS.int()
    made = lay_out(PLAIN, CPU, Batch(none, none, BOUNDS, bounds=there))
    assert made.bounds.cu_seqlens is there
    assert made.bounds.longest == max(LENGTHS)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [None, 2, 7, 12, 13, 39, 40, 10_000])
@pytest.mark.parametrize("keys", KEYS)
def test_tokens_that_nothing_attends_to_are_kept_from_the_kernel(causal: bool, window: int | None, keys: str) -> None:
    given = states(4, 2, 2)
    ours = layout(KEYS[keys]).attend(*given, causal=causal, window=window, scale=None)
    expected = PackedLayout.of(BOUNDS, KEYS[keys], CPU).attend(*given, causal=causal, window=window, scale=None)
    assert ours.is_contiguous()
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("causal", "window", "calls"), [(False, None, 1), (False, 12, 1), (False, 11, 0), (True, None, 0)]
)
def test_the_kernel_serves_where_its_windows_mean_the_same(causal: bool, window: int | None, calls: int) -> None:
    made = layout(torch.tensor([5, 2, 1, 40, 12, 4, 23]))
    seen: list[int] = []
    counted = replace(PLAIN, attend=lambda *arguments: seen.append(1) or PLAIN.attend(*arguments))
    replace(made, kernel=counted).attend(*states(4, 4, 4), causal=causal, window=window, scale=None)
    assert len(seen) == calls


def test_states_that_lie_head_by_head_come_back_token_by_token() -> None:
    given = [each.contiguous() for each in states(4, 4, 4)]
    ours = layout().attend(*given, causal=False, window=None, scale=None)
    assert ours.is_contiguous()
    expected = PackedLayout(runs_of(BOUNDS)).attend(*given, causal=False, window=None, scale=None)
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (states(4, 4, 4, dtype=torch.float64), "its attention is in float64, and plain takes bfloat16 and float16"),
        (states(4, 4, 4, size=12), "its heads are 12 wide, and plain takes multiples of 8 up to 256"),
        (states(4, 4, 4, size=264), "its heads are 264 wide"),
        ([*states(4, 4), *states(4, size=16)], "its values are 16 wide and its queries 8"),
        ([*states(4, 4), *states(4, dtype=torch.bfloat16)], "its attention is in bfloat16 and float32"),
    ],
)
def test_states_a_kernel_does_not_take_are_refused_by_name(given: list[torch.Tensor], reason: str) -> None:
    half = replace(layout(), kernel=replace(PLAIN, dtypes=frozenset({torch.float16, torch.bfloat16, torch.float32})))
    with pytest.raises(RunnerUnfitError, match=reason):
        half.attend(*given, causal=False, window=None, scale=None)
