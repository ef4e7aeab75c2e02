"""Every variable-length kernel against attention spelled out in float64, sequence by sequence."""

from __future__ import annotations

import pytest
import torch
from sie_flash.kernels import Bounds

from tests.flash.plain import attend
from tests.gpu.device import DEVICE, HALF, KERNELS, NEEDS_GPU, MakeKernel

pytestmark = NEEDS_GPU

LENGTHS = (5, 5, 1, 700, 128, 12, 129, 64)
KEY_LENGTHS = (5, 2, 0, 650, 128, 12, 1, 64)
TOLERANCE = {torch.float16: 3e-3, torch.bfloat16: 2e-2}
"""Largest difference; the values have a standard deviation of 1."""


def bounds(lengths: tuple[int, ...], device: torch.device | str = "cpu") -> Bounds:
    return Bounds(torch.tensor([0, *lengths]).cumsum(0).to(torch.int32).to(device), max(lengths))


def both() -> tuple[Bounds, Bounds]:
    """Queries and keys of the whole sequences, on the device."""
    return bounds(LENGTHS, DEVICE), bounds(LENGTHS, DEVICE)


HERE = bounds(LENGTHS)


def states(heads: int, key_heads: int, size: int, dtype: torch.dtype) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(size)
    total = sum(LENGTHS)
    return [torch.randn(total, each, size, generator=generator).to(dtype) for each in (heads, key_heads, key_heads)]


@pytest.mark.parametrize("make", KERNELS)
@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("window", [(-1, -1), (-1, 0), (7, 7), (7, 0), (0, 0), (200, 200), (10_000, 0)])
@pytest.mark.parametrize("key_heads", [8, 2])
def test_a_kernel_attends_within_each_sequence(
    make: MakeKernel, dtype: torch.dtype, window: tuple[int, int], key_heads: int
) -> None:
    given = states(8, key_heads, 64, dtype)
    there = [each.to(DEVICE) for each in given]
    ours = make().attend(*there, *both(), None, window)
    expected = attend(*(each.double() for each in given), HERE, HERE, None, window)
    assert ours.dtype == dtype
    torch.testing.assert_close(ours.cpu().double(), expected, rtol=0, atol=TOLERANCE[dtype])


@pytest.mark.parametrize("make", KERNELS)
@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("size", [8, 24, 32, 96, 128, 256])
def test_a_kernel_takes_every_size_of_head_it_claims(make: MakeKernel, dtype: torch.dtype, size: int) -> None:
    kernel = make()
    given = states(2, 2, size, dtype)
    kernel.require(*given)
    ours = kernel.attend(*(each.to(DEVICE) for each in given), *both(), 0.1, (-1, 0))
    expected = attend(*(each.double() for each in given), HERE, HERE, 0.1, (-1, 0))
    torch.testing.assert_close(ours.cpu().double(), expected, rtol=0, atol=TOLERANCE[dtype])


@pytest.mark.parametrize("make", KERNELS)
def test_states_that_lie_head_by_head_are_taken(make: MakeKernel) -> None:
    given = states(4, 4, 64, torch.float16)
    turned = [each.to(DEVICE).transpose(0, 1).contiguous().transpose(0, 1) for each in given]
    ours = make().attend(*turned, *both(), None, (-1, -1))
    expected = attend(*(each.double() for each in given), HERE, HERE, None, (-1, -1))
    torch.testing.assert_close(ours.cpu().double(), expected, rtol=0, atol=TOLERANCE[torch.float16])


@pytest.mark.parametrize("make", KERNELS)
@pytest.mark.parametrize("window", [(-1, -1), (700, 700)])
def test_fewer_keys_than_queries_are_attended_to(make: MakeKernel, window: tuple[int, int]) -> None:
    query, key, value = states(8, 2, 64, torch.float16)
    key, value = key[: sum(KEY_LENGTHS)], value[: sum(KEY_LENGTHS)]
    there = [each.to(DEVICE) for each in (query, key, value)]
    ours = make().attend(*there, bounds(LENGTHS, DEVICE), bounds(KEY_LENGTHS, DEVICE), None, window)
    expected = attend(query.double(), key.double(), value.double(), HERE, bounds(KEY_LENGTHS), None, window)
    torch.testing.assert_close(ours.cpu().double(), expected, rtol=0, atol=TOLERANCE[torch.float16])
