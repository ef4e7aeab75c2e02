"""Products of the loop on a GPU, in as few launches as PyTorch's operators allow, and without modules around them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from sie_pytorch.forward import LayerStack, LoraDelta, Rows, plain_linear

_tanh_gelu = partial(F.gelu, approximate="tanh")

ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "gelu": F.gelu,
    "gelu_new": _tanh_gelu,
    "gelu_pytorch_tanh": _tanh_gelu,
    "relu": torch.relu,
    "silu": F.silu,
}
"""Keyed by transformers' names."""
TANH_GELUS = frozenset({"gelu_new", "gelu_pytorch_tanh"})
"""GELU by its approximation with a tanh, which cuBLAS fuses into a product."""


def fused(activation: str, dtype: torch.dtype) -> bool:
    """Whether cuBLAS computes an activation within a product, as near to float32 as after it.

    Its GELU is the tanh approximation, with an error of at most 5e-4. That spares the product's rounding before the
    activation, which errs more in bfloat16, and less in float16.
    """
    return activation in TANH_GELUS | {"relu"} or (activation == "gelu" and dtype is torch.bfloat16)


class FusedLinear:
    """A `Product` of the loop: `[rows, in] → [rows, sum of outs]`."""

    def __init__(self, layers: Sequence[torch.nn.Linear | Rows], dtype: torch.dtype) -> None:
        """Take the weights of `layers` side by side.

        The weights of `layers` become views of the joined one, so they are in memory once and the model is unchanged.
        """
        # Views of a tensor made in inference mode cannot become weights of a model that was not.
        with torch.inference_mode(layers[0].weight.is_inference()):
            weights = [layer.weight.detach() for layer in layers]
            joined = weights[0].to(dtype) if len(layers) == 1 else torch.cat(weights).to(dtype)
            parts = joined.split([len(weight) for weight in weights])  # type: ignore[no-untyped-call]
            for layer, weight, part in zip(layers, weights, parts, strict=True):
                if len(layers) > 1 and weight.dtype is dtype and isinstance(layer, torch.nn.Linear):
                    layer.weight.data = part
        self.weight = joined.t()
        """`[in, out]`."""
        biases = [
            weight.new_zeros(len(weight)) if layer.bias is None else layer.bias.detach()
            for layer, weight in zip(layers, weights, strict=True)
        ]
        present = any(layer.bias is not None for layer in layers)
        self.bias = torch.cat(biases).to(dtype) if present else None
        """`[out]`."""

    def __call__(self, states: torch.Tensor, delta: torch.Tensor | None = None) -> torch.Tensor:
        """Multiply, add the bias and the LoRA delta."""
        bias, weight = self.bias, self.weight
        result = torch.mm(states, weight) if bias is None else torch.addmm(bias, states, weight)
        return result if delta is None else result.add_(delta)

    def add(self, states: torch.Tensor, residual: torch.Tensor, delta: torch.Tensor | None = None) -> torch.Tensor:
        """Multiply and add to `residual` in place; a product without a bias does both in one launch."""
        if delta is not None:
            residual.add_(delta)
        if self.bias is None:
            return residual.addmm_(states, self.weight)
        return residual.add_(torch.addmm(self.bias, states, self.weight))


class FusedUpProjection:
    """An `UpProjection` of the loop: one product, with the activation fused in if cuBLAS has it."""

    def __init__(self, stack: LayerStack, layer: torch.nn.Module, dtype: torch.dtype, *, fuses: bool) -> None:
        """Take the weights.

        Args:
            stack: The description of the layers.
            layer: The one.
            dtype: Precision of the computation.
            fuses: Whether products of the device take an activation in.
        """
        row, activation = stack.row, stack.activation
        self._names, self._gated = row.up, row.gated
        self._activate = ACTIVATIONS[activation]
        self.product = FusedLinear([plain_linear(layer, name) for name in row.up], dtype)
        self._halves = (self.product.weight.shape[1] // 2,) * 2
        self._gate_first = len(row.up) == 1
        self._fuses = fuses and not row.gated and self.product.bias is not None and fused(activation, dtype)
        self._use_gelu = activation != "relu"

    def __call__(self, inputs: torch.Tensor, lora: LoraDelta) -> torch.Tensor:
        """Widen; see `UpProjection`."""
        product, more = self.product, lora(inputs, *self._names)
        bias = product.bias
        if self._fuses and more is None and bias is not None:
            return torch._addmm_activation(bias, inputs, product.weight, use_gelu=self._use_gelu)
        wide = product(inputs, more)
        if not self._gated:
            return self._activate(wide)
        return self._gate(wide)

    def _gate(self, wide: torch.Tensor) -> torch.Tensor:
        """Multiply the activated half of `[rows, 2 * inner]` with the other one: `[rows, inner]`."""
        first, second = wide.split_with_sizes(self._halves, 1)
        gate, up = (first, second) if self._gate_first else (second, first)
        return self._activate(gate).mul_(up)
