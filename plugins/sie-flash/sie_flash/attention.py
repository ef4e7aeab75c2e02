"""Attention of the loop on a GPU, in the states as the product makes them: nothing is copied to be laid out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from sie_pytorch.forward import LayerStack, RunnerUnfitError, plain_linear

from sie_flash.layout import VarlenLayout
from sie_flash.products import FusedLinear


class Rotation(NamedTuple):
    """Rotary angles of the tokens, to multiply the pairs of elements with that are turned together."""

    cosine: torch.Tensor
    """`[total_tokens, 1, 1, pairs]`, or `[total_tokens, 1, pairs, 1]` if neighbours form pairs."""
    sine: torch.Tensor
    """`[total_tokens, 1, 2, pairs]`, or `[total_tokens, 1, pairs, 2]`: negative for the first of a pair."""
    width: int
    """Number of rotated elements of a head."""


class VarlenAttention:
    """An `Attention` of the loop: heads stay side by side as in the product, and are rotated in place."""

    def __init__(self, stack: LayerStack, layer: torch.nn.Module, dtype: torch.dtype) -> None:
        """Take the weights of one layer.

        Raises:
            RunnerUnfitError: The norms of queries and of keys differ in more than their weights.
        """
        heads, key_heads, size = stack.heads, stack.key_heads, stack.head_size
        self._size, self._scale, self._causal = size, stack.scale, stack.causal
        self._all = (-1, heads + 2 * key_heads, size)
        self._apart = (heads, key_heads, key_heads)
        self._turned = (heads + key_heads, key_heads)
        self._turned_apart = (heads, key_heads)
        self._side_by_side = (-1, heads * size)
        self._pair_axis = -1 if stack.row.rotary == "interleaved" else -2
        self.qkv = FusedLinear([plain_linear(layer, name) for name in stack.row.joined], dtype)
        self._norm_weights, self._epsilon = _head_norms(stack, layer, dtype)

    def __call__(
        self,
        inputs: torch.Tensor,
        total: int,
        layout: VarlenLayout,
        angles: Rotation | None,
        window: int | None,
        delta: torch.Tensor | None,
    ) -> torch.Tensor:
        """Attend; see `Attention`."""
        query, key, value = self._heads(self.qkv(inputs, delta).view(self._all), angles)
        attended = layout.attend_rows(query, key, value, causal=self._causal, window=window, scale=self._scale)
        return attended.reshape(self._side_by_side)

    def _heads(self, joined: torch.Tensor, angles: Rotation | None) -> Sequence[torch.Tensor]:
        """Make queries, keys and values of `[total_tokens, heads + 2 * key_heads, head_size]`, which it may overwrite:
        normalise the heads of queries and keys, and rotate them.
        """
        if angles is None and self._norm_weights is None:
            return joined.split_with_sizes(self._apart, 1)
        turned, value = joined.split_with_sizes(self._turned, 1)
        if self._norm_weights is not None:
            turned = torch.rms_norm(turned, (self._size,), None, self._epsilon).mul_(self._norm_weights)
        if angles is not None:
            self._rotate(turned, angles)
        return *turned.split_with_sizes(self._turned_apart, 1), value

    def _rotate(self, states: torch.Tensor, rotation: Rotation) -> None:
        """Turn the first elements of `[total_tokens, heads, head_size]`, in their place (arXiv 2104.09864)."""
        cosine, sine, width = rotation
        turned = states if width == self._size else states[..., :width]
        pairs = turned.view(*turned.shape[:2], *((width // 2, 2) if self._pair_axis == -1 else (2, width // 2)))
        others = pairs.flip(self._pair_axis)
        pairs.mul_(cosine).addcmul_(others, sine)


def _head_norms(
    stack: LayerStack, layer: torch.nn.Module, dtype: torch.dtype
) -> tuple[torch.Tensor | None, float | None]:
    """Return the weights of the norms of queries and keys, `[heads + key_heads, head_size]`, and their epsilon; None
    without norms.

    Raises:
        RunnerUnfitError: They differ in more than their weights.
    """
    row = stack.row
    if row.query_norm is None or row.key_norm is None:
        return None, None
    query, key = (stack.numbers(layer.get_submodule(name), of_head=True) for name in (row.query_norm, row.key_norm))
    if query.epsilon != key.epsilon:
        raise RunnerUnfitError(f"its queries are normalised with {query.epsilon} and its keys with {key.epsilon}")
    weights = [query.weight.expand(stack.heads, -1), key.weight.expand(stack.key_heads, -1)]
    return torch.cat(weights).to(dtype), query.epsilon
