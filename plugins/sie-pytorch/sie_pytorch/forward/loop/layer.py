"""One layer of the encoder loop: attention and feed-forward part over prepacked weights, as a row describes them."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

from sie_pytorch.forward.architectures import PreNorm
from sie_pytorch.forward.layout import PackedLayout
from sie_pytorch.forward.loop.entry import Angles
from sie_pytorch.forward.loop.linear import PackedLinear, Rows, halves
from sie_pytorch.forward.loop.stack import LayerNorms, LayerStack, plain_linear

Added = Callable[..., torch.Tensor | None]
"""From states and the names of the layers they enter to what low-rank factors add to the joined result, or None."""


class Norm:
    """A norm's numbers, called without a module's overhead."""

    def __init__(
        self, stack: LayerStack, module: torch.nn.Module, dtype: torch.dtype, *, of_head: bool = False
    ) -> None:
        found = stack.numbers(module, of_head=of_head)
        self._weight = found.weight.to(dtype)
        self._bias = None if found.bias is None else found.bias.to(dtype)
        self._shape, self._epsilon = self._weight.shape, found.epsilon
        self._is_rms = of_head or stack.row.norm != "layer"

    def __call__(self, states: torch.Tensor) -> torch.Tensor:
        """Normalise over the last dimension."""
        if self._is_rms:
            return F.rms_norm(states, self._shape, self._weight, self._epsilon)
        return F.layer_norm(states, self._shape, self._weight, self._bias, self._epsilon)


class LoopLayer:
    """The packed weights of one layer."""

    def __init__(self, stack: LayerStack, layer: torch.nn.Module, norms: LayerNorms, dtype: torch.dtype) -> None:
        """Pack the weights of `layer`.

        Raises:
            RunnerUnfitError: A part is not what the row says, or its activation cannot be fused.
        """
        row = stack.row
        self._row, self._scale, self._causal, self._head_size = row, stack.scale, stack.causal, stack.head_size
        self._heads, self._key_heads = stack.heads, stack.key_heads
        self._is_pre = isinstance(row.norms, PreNorm)
        self._attended_norm, self._narrowed_norm = (
            None if each is None else Norm(stack, each, dtype) for each in (norms.attended, norms.narrowed)
        )
        self._attention_norm = Norm(stack, norms.attention, dtype)
        self._output_norm = Norm(stack, norms.output, dtype)
        self._head_norms = [
            Norm(stack, layer.get_submodule(name), dtype, of_head=True)
            for name in (row.query_norm, row.key_norm)
            if name
        ]
        self._qkv = PackedLinear([plain_linear(layer, name) for name in row.joined], dtype)
        self._attention_output = PackedLinear([plain_linear(layer, row.attention_output)], dtype)
        self._down = PackedLinear([plain_linear(layer, row.down)], dtype)
        up, gate = _widening(layer, stack)
        self._up = PackedLinear([up], dtype, None if gate else stack.activation)
        self._gate = PackedLinear([gate], dtype, stack.activation) if gate else None

    def __call__(
        self,
        states: torch.Tensor,
        inputs: torch.Tensor,
        total: int,
        layout: PackedLayout,
        angles: Angles | None,
        window: int | None,
        added: Added,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Run the layer.

        Args:
            states: `[rows, hidden]`, what the parts are added to. Rows beyond the tokens are computed along, unread.
            inputs: `[rows, hidden]`, what the first product takes: `states`, or before a pre-norm layer its norm.
            total: How many rows are tokens.
            layout: Where the sequences lie.
            angles: Of the tokens' positions.
            window: How far a token sees.
            added: Low-rank parts.

        Returns:
            The states and inputs of the next layer; of the last one the inputs are the model's states.
        """
        row = self._row
        attended = self._attend(inputs, total, layout, angles, window, added(inputs, *row.joined))
        product = self._attention_output
        states, inputs = self._sum(
            product, attended, states, added(attended, row.attention_output), self._attended_norm, self._attention_norm
        )
        inner = self._widen(inputs, added)
        return self._sum(self._down, inner, states, added(inner, row.down), self._narrowed_norm, self._output_norm)

    def _sum(
        self,
        product: PackedLinear,
        values: torch.Tensor,
        states: torch.Tensor,
        added: torch.Tensor | None,
        own: Norm | None,
        norm: Norm,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Add what a part gives, normalised by its `own` norm where it has one, and normalise the sum."""
        states = product.add(values, states, added) if own is None else states + own(product(values, added))
        inputs = norm(states)
        return (states if self._is_pre else inputs), inputs

    def _widen(self, inputs: torch.Tensor, added: Added) -> torch.Tensor:
        names = self._row.up
        if self._gate is None:
            return self._up(inputs, added(inputs, *names))
        if len(names) > 1:
            up, gate = (added(inputs, name) for name in names)
        else:
            both = added(inputs, *names)
            gate, up = (None, None) if both is None else both.chunk(2, dim=1)
        return self._up(inputs, up).mul_(self._gate(inputs, gate))

    def _attend(
        self,
        inputs: torch.Tensor,
        total: int,
        layout: PackedLayout,
        angles: Angles | None,
        window: int | None,
        added: torch.Tensor | None,
    ) -> torch.Tensor:
        heads, key_heads, size = self._heads, self._key_heads, self._head_size
        joined = self._qkv(inputs, added)[:total].view(total, heads + 2 * key_heads, size)
        turned, value = torch.split(joined, [heads + key_heads, key_heads], dim=1)
        if self._head_norms:
            parts = torch.split(turned, [heads, key_heads], dim=1)
            turned = torch.cat([norm(part) for norm, part in zip(self._head_norms, parts, strict=True)], dim=1)
        if angles is not None:
            turned = _rotate(turned, angles, interleaved=self._row.rotary == "interleaved")
        query, key = torch.split(turned, [heads, key_heads], dim=1)
        query, key, value = (part.transpose(0, 1)[None] for part in (query, key, value))
        attended = layout.attend(query, key, value, causal=self._causal, window=window, scale=self._scale)
        return F.pad(attended.view(total, heads * size), (0, 0, 0, inputs.shape[0] - total))


def _widening(
    layer: torch.nn.Module, stack: LayerStack
) -> tuple[torch.nn.Linear | Rows, torch.nn.Linear | Rows | None]:
    """Find what widens, and where gated the gate."""
    layers = [plain_linear(layer, name) for name in stack.row.up]
    if not stack.row.gated:
        return layers[0], None
    if len(layers) > 1:
        return layers[0], layers[1]
    gate, up = halves(layers[0])
    return up, gate


def _rotate(states: torch.Tensor, angles: Angles, *, interleaved: bool) -> torch.Tensor:
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
