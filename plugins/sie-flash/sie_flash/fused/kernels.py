"""Triton kernels of the steps between products; they compute in float32 and round once."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

COLUMNS = 1024
"""Columns of a block of the gate."""


@triton.jit  # type: ignore[untyped-decorator]
def _gated(
    wide: tl.tensor, result: tl.tensor, inner: tl.tensor, gate_at: tl.tensor, up_at: tl.tensor, block: tl.constexpr
) -> None:
    """Compute a block of one row."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * block + tl.arange(0, block)
    seen = columns < inner
    gate = tl.load(wide + row * 2 * inner + gate_at + columns, mask=seen, other=0.0).to(tl.float32)
    up = tl.load(wide + row * 2 * inner + up_at + columns, mask=seen, other=0.0).to(tl.float32)
    value = gate * tl.sigmoid(gate) * up
    tl.store(result + row * inner + columns, value.to(result.dtype.element_ty), mask=seen)


@triton.jit  # type: ignore[untyped-decorator]
def _turned(
    joined: tl.tensor,
    result: tl.tensor,
    weights: tl.tensor,
    cosine: tl.tensor,
    sine: tl.tensor,
    row_stride: tl.tensor,
    cosine_stride: tl.tensor,
    epsilon: tl.tensor,
    size: tl.constexpr,
    width: tl.constexpr,
    block: tl.constexpr,
    normed: tl.constexpr,
    neighbours: tl.constexpr,
) -> None:
    """Compute one head of one token."""
    token, head, heads = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(1)
    place = tl.arange(0, block)
    seen, turns = place < size, place < width
    if neighbours:
        other, angle = place ^ 1, place // 2
    else:
        other = tl.where(place < width // 2, place + width // 2, place - width // 2)
        angle = tl.where(place < width // 2, place, place - width // 2)
    source = joined + token * row_stride + head * size
    own = tl.load(source + place, mask=seen, other=0.0).to(tl.float32)
    partner = tl.load(source + other, mask=turns, other=0.0).to(tl.float32)
    if normed:
        scale = 1.0 / tl.sqrt(tl.sum(own * own, 0) / size + epsilon)
        own *= scale * tl.load(weights + head * size + place, mask=seen, other=0.0).to(tl.float32)
        partner *= scale * tl.load(weights + head * size + other, mask=turns, other=0.0).to(tl.float32)
    if width > 0:
        cos = tl.load(cosine + token * cosine_stride + angle, mask=turns, other=1.0).to(tl.float32)
        sin = tl.load(sine + token * width + place, mask=turns, other=0.0).to(tl.float32)
        own = own * cos + partner * sin
    tl.store(result + (token * heads + head) * size + place, own.to(result.dtype.element_ty), mask=seen)


def silu_gate(wide: torch.Tensor, *, gate_first: bool) -> torch.Tensor:
    """Multiply SiLU of the one half of `[rows, 2 * inner]`, contiguous, with the other half: `[rows, inner]`."""
    rows, inner = wide.shape[0], wide.shape[1] // 2
    result = wide.new_empty((rows, inner))
    gate_at, up_at = (0, inner) if gate_first else (inner, 0)
    _gated[(rows, triton.cdiv(inner, COLUMNS))](wide, result, inner, gate_at, up_at, COLUMNS)
    return result


def turn_heads(
    joined: torch.Tensor,
    heads: int,
    weights: torch.Tensor | None,
    epsilon: float | None,
    cosine: torch.Tensor | None,
    sine: torch.Tensor | None,
    *,
    neighbours: bool,
) -> torch.Tensor:
    """Normalise and rotate the first `heads` heads of every token: `[total_tokens, heads, head_size]`.

    Args:
        joined: `[total_tokens, all heads, head_size]`, contiguous.
        heads: How many heads are normalised and rotated.
        weights: `[heads, head_size]` of the RMS norms; None without norms.
        epsilon: Of the norms; None without norms.
        cosine: `[total_tokens, …]` with a value for each pair, the pairs side by side; None without rotation.
        sine: `[total_tokens, …]`, contiguous, with a value for each rotated element: negative for the first of a pair.
        neighbours: Whether neighbours form pairs; if not, elements of the first and second half do.
    """
    total, _, size = joined.shape
    result = joined.new_empty((total, heads, size))
    width = 0 if sine is None else sine[0].numel()
    _turned[(total, heads)](
        joined,
        result,
        joined if weights is None else weights,
        joined if cosine is None else cosine,
        joined if sine is None else sine,
        joined.stride(0),
        0 if cosine is None else cosine.stride(0),
        epsilon or 0.0,
        size,
        width,
        triton.next_power_of_2(size),
        weights is not None,
        neighbours,
        num_warps=1,
    )
    return result
