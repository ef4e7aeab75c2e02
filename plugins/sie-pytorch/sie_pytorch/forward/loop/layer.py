"""One layer of the loop, as described by a row: the order of its parts and the residual sums.

Products and attention are specific to the device: see `LoopParts`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from sie_text.architectures import PreNorm

from sie_pytorch.forward.loop.entry import Angles
from sie_pytorch.forward.loop.linear import Rows, split_gate
from sie_pytorch.forward.loop.stack import LayerNorms, LayerStack, plain_linear
from sie_pytorch.forward.protocol import Batch

LoraDelta = Callable[..., torch.Tensor | None]
"""Maps states and the names of the layers that they enter to the LoRA delta of the joined result, or None."""


class Product(Protocol):
    """One or more linear layers over the same input: `[rows, in] → [rows, sum of outs]`."""

    def __call__(self, states: torch.Tensor, delta: torch.Tensor | None = None) -> torch.Tensor:
        """Multiply, add the bias and the LoRA delta."""
        ...

    def add(self, states: torch.Tensor, residual: torch.Tensor, delta: torch.Tensor | None = None) -> torch.Tensor:
        """Multiply, add the bias, `residual` and the LoRA delta; the residual may be overwritten."""
        ...


class UpProjection(Protocol):
    """The up-projection of the feed-forward part with activation and gate: `[rows, hidden] → [rows, inner]`."""

    def __call__(self, inputs: torch.Tensor, lora: LoraDelta) -> torch.Tensor:
        """Widen."""
        ...


class Attention(Protocol):
    """Maps a layer's input to its concatenated heads: `[rows, hidden] → [rows, heads * head_size]`."""

    def __call__(
        self,
        inputs: torch.Tensor,
        total: int,
        layout: Any,
        angles: Any,
        window: int | None,
        delta: torch.Tensor | None,
    ) -> torch.Tensor:
        """Project, normalise heads, rotate and attend; see `LoopLayer.__call__`."""
        ...


class LoopParts(Protocol):
    """The products and attention of a kind of device."""

    def product(self, layers: Sequence[torch.nn.Linear | Rows]) -> Product:
        """Take the weights of one or more layers side by side.

        Raises:
            RunnerUnfitError: It cannot multiply by them as one.
        """
        ...

    def up_projection(self, stack: LayerStack, layer: torch.nn.Module) -> UpProjection:
        """Take the weights that widen."""
        ...

    def attention(self, stack: LayerStack, layer: torch.nn.Module) -> Attention:
        """Take the weights of queries, keys and values, and the norms of their heads."""
        ...

    def row_count(self, tokens: int) -> int:
        """Return the number of rows to compute for `tokens` tokens, at least as many."""
        ...

    def lay_out(self, batch: Batch) -> Any:
        """Convert a batch's layout to the form of every layer's attention, once per pass."""
        ...

    def rotation(self, stack: LayerStack, angles: Angles) -> Any:
        """Bring rotary angles into the form that its attention takes, once a pass."""
        ...


class Norm:
    """A norm's numbers, called without a module's overhead."""

    def __init__(
        self, stack: LayerStack, module: torch.nn.Module, dtype: torch.dtype, *, of_head: bool = False
    ) -> None:
        found = stack.numbers(module, of_head=of_head)
        self._weight = found.weight.to(dtype)
        self.bias = None if found.bias is None else found.bias.to(dtype)
        """The bias; a runner may replace it."""
        self._shape, self._epsilon = tuple(self._weight.shape), found.epsilon
        self.is_rms = of_head or stack.row.norm != "layer"

    @property
    def largest(self) -> float:
        """Return the largest of its weights, whatever the sign."""
        return float(self._weight.abs().max())

    def __call__(self, states: torch.Tensor) -> torch.Tensor:
        """Normalise over the last dimension."""
        if self.is_rms:
            return torch.rms_norm(states, self._shape, self._weight, self._epsilon)
        return torch.layer_norm(states, self._shape, self._weight, self.bias, self._epsilon)


class LoopLayer:
    """The parts of one layer."""

    def __init__(
        self, stack: LayerStack, layer: torch.nn.Module, norms: LayerNorms, dtype: torch.dtype, parts: LoopParts
    ) -> None:
        """Take the weights of `layer`.

        Raises:
            RunnerUnfitError: A part does not match the row, or `parts` does not compute it.
        """
        self._row = row = stack.row
        self.is_pre = isinstance(row.norms, PreNorm)
        self._post_attention_norm, self._post_mlp_norm = (
            None if each is None else Norm(stack, each, dtype)
            for each in (norms.post_attention_norm, norms.post_mlp_norm)
        )
        self.attention_norm = Norm(stack, norms.attention, dtype)
        self.output_norm = Norm(stack, norms.output, dtype)
        self.attention = parts.attention(stack, layer)
        self.attention_output = parts.product([plain_linear(layer, row.attention_output)])
        self.down = parts.product([plain_linear(layer, row.down)])
        self.up_projection = parts.up_projection(stack, layer)

    def __call__(
        self,
        states: torch.Tensor,
        inputs: torch.Tensor,
        total: int,
        layout: Any,
        angles: Any,
        window: int | None,
        lora: LoraDelta,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Run the layer.

        Args:
            states: `[rows, hidden]`, the residual. Rows beyond the tokens are computed along, unread.
            inputs: `[rows, hidden]`, the input of the first product: `states`, or its norm in a pre-norm layer.
            total: Number of rows that are tokens.
            layout: The layout of the sequences, from `LoopParts.lay_out`.
            angles: Of the tokens' positions; of `LoopParts.rotation`.
            window: Attention window of a token.
            lora: Computes the LoRA deltas.

        Returns:
            The states and inputs of the next layer; of the last one the inputs are the model's states.
        """
        row = self._row
        attended = self.attention(inputs, total, layout, angles, window, lora(inputs, *row.joined))
        product = self.attention_output
        states, inputs = self._sum(
            product,
            attended,
            states,
            lora(attended, row.attention_output),
            self._post_attention_norm,
            self.attention_norm,
        )
        inner = self.up_projection(inputs, lora)
        return self._sum(self.down, inner, states, lora(inner, row.down), self._post_mlp_norm, self.output_norm)

    def _sum(
        self,
        product: Product,
        values: torch.Tensor,
        states: torch.Tensor,
        delta: torch.Tensor | None,
        own: Norm | None,
        norm: Norm,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Add a part's output to the residual, normalised by its `own` norm if it has one, and normalise the sum."""
        states = product.add(values, states, delta) if own is None else states + own(product(values, delta))
        inputs = norm(states)
        return (states if self.is_pre else inputs), inputs


def head_norms(stack: LayerStack, layer: torch.nn.Module, dtype: torch.dtype) -> list[Norm]:
    """Return the norms of the heads of queries and keys; empty if there are none."""
    names = (stack.row.query_norm, stack.row.key_norm)
    return [Norm(stack, layer.get_submodule(name), dtype, of_head=True) for name in names if name]


def up_projection_layers(
    layer: torch.nn.Module, stack: LayerStack
) -> tuple[torch.nn.Linear | Rows, torch.nn.Linear | Rows | None]:
    """Return the up-projection, and the gate if there is one."""
    layers = [plain_linear(layer, name) for name in stack.row.up]
    if not stack.row.gated:
        return layers[0], None
    if len(layers) > 1:
        return layers[0], layers[1]
    gate, up = split_gate(layers[0])
    return up, gate
