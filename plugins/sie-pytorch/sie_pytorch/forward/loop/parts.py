"""The parts of the loop on a CPU: prepacked products, and PyTorch's attention over runs of sequences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from sie_pytorch.forward.layout import PackedLayout
from sie_pytorch.forward.loop.entry import Angles
from sie_pytorch.forward.loop.layer import LoraDelta, head_norms, up_projection_layers
from sie_pytorch.forward.loop.linear import PackedLinear, Rows, row_count
from sie_pytorch.forward.loop.stack import LayerStack, plain_linear
from sie_pytorch.forward.protocol import Batch
from sie_pytorch.forward.transfers import Transfers


@dataclass(frozen=True, slots=True)
class PrepackedParts:
    """`LoopParts` over weights in oneDNN's layout."""

    dtype: torch.dtype
    transfers: Transfers
    eager: bool
    """Whether attention runs as separate products and a softmax instead of PyTorch's fused function."""

    def product(self, layers: Sequence[torch.nn.Linear | Rows]) -> PackedLinear:
        """See `LoopParts.product`."""
        return PackedLinear(layers, self.dtype)

    def up_projection(self, stack: LayerStack, layer: torch.nn.Module) -> PackedUpProjection:
        """See `LoopParts.up_projection`."""
        return PackedUpProjection(stack, layer, self.dtype)

    def attention(self, stack: LayerStack, layer: torch.nn.Module) -> RunAttention:
        """See `LoopParts.attention`."""
        return RunAttention(stack, layer, self.dtype)

    def row_count(self, tokens: int) -> int:
        """See `linear.row_count`."""
        return row_count(tokens)

    def lay_out(self, batch: Batch) -> PackedLayout:
        """See `LoopParts.lay_out`."""
        return PackedLayout.of(batch.cu_seqlens, batch.key_lengths, self.transfers, eager=self.eager)

    def rotation(self, stack: LayerStack, angles: Angles) -> Angles:
        """Return the angles unchanged."""
        return angles


class PackedUpProjection:
    """An `UpProjection` by one product, or by two if one is the gate; the activation is fused in."""

    def __init__(self, stack: LayerStack, layer: torch.nn.Module, dtype: torch.dtype) -> None:
        """Pack the weights."""
        self._names = stack.row.up
        up, gate = up_projection_layers(layer, stack)
        self._up = PackedLinear([up], dtype, None if gate else stack.activation)
        self._gate = PackedLinear([gate], dtype, stack.activation) if gate else None

    def __call__(self, inputs: torch.Tensor, lora: LoraDelta) -> torch.Tensor:
        """Widen; see `UpProjection`."""
        names = self._names
        if self._gate is None:
            return self._up(inputs, lora(inputs, *names))
        if len(names) > 1:
            up, gate = (lora(inputs, name) for name in names)
        else:
            both = lora(inputs, *names)
            gate, up = (None, None) if both is None else both.chunk(2, dim=1)
        return self._up(inputs, up).mul_(self._gate(inputs, gate))


class RunAttention:
    """Attention over runs of sequences of equal length."""

    def __init__(self, stack: LayerStack, layer: torch.nn.Module, dtype: torch.dtype) -> None:
        self._heads, self._key_heads, self._head_size = stack.heads, stack.key_heads, stack.head_size
        self._scale, self._causal, self._bias = stack.scale, stack.causal, stack.bias
        self._interleaved = stack.row.rotary == "interleaved"
        self._qkv = PackedLinear([plain_linear(layer, name) for name in stack.row.joined], dtype)
        self._head_norms = head_norms(stack, layer, dtype)

    def __call__(
        self,
        inputs: torch.Tensor,
        total: int,
        layout: PackedLayout,
        angles: Angles | None,
        window: int | None,
        delta: torch.Tensor | None,
    ) -> torch.Tensor:
        """Attend; see `Attention`."""
        heads, key_heads, size = self._heads, self._key_heads, self._head_size
        joined = self._qkv(inputs, delta)[:total].view(total, heads + 2 * key_heads, size)
        turned, value = torch.split(joined, [heads + key_heads, key_heads], dim=1)
        if self._head_norms:
            parts = torch.split(turned, [heads, key_heads], dim=1)
            turned = torch.cat([norm(part) for norm, part in zip(self._head_norms, parts, strict=True)], dim=1)
        if angles is not None:
            turned = rotate(turned, angles, interleaved=self._interleaved)
        query, key = torch.split(turned, [heads, key_heads], dim=1)
        query, key, value = (part.transpose(0, 1)[None] for part in (query, key, value))
        attended = layout.attend(
            query, key, value, causal=self._causal, window=window, scale=self._scale, bias=self._bias
        )
        return F.pad(attended.view(total, heads * size), (0, 0, 0, inputs.shape[0] - total))


def rotate(states: torch.Tensor, angles: Angles, *, interleaved: bool) -> torch.Tensor:
    """Turn the first elements of `[total_tokens, heads, head_size]` by their angles (arXiv 2104.09864)."""
    cosine, sine = (part[:, None] for part in angles)
    width = cosine.shape[-1]
    turned, still = states[..., :width], states[..., width:]
    if interleaved:
        first, second = turned[..., ::2], turned[..., 1::2]
        cosine, sine = (part[..., : width // 2] for part in (cosine, sine))
        pairs = (first * cosine - second * sine, second * cosine + first * sine)
        turned = torch.stack(pairs, dim=-1).flatten(-2)
    else:
        first, second = turned.chunk(2, dim=-1)
        turned = turned * cosine + torch.cat((-second, first), dim=-1) * sine
    return torch.cat((turned, still), dim=-1) if still.shape[-1] else turned
