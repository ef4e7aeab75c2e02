"""Linear layers over weights in oneDNN's blocked layout, with the following operations fused in.

For few rows (a short text), a plain product spends most of its time rearranging the weights. Over MiniLM's shapes on an
AVX-512 CPU, a prepacked product of 12 to 52 rows takes a quarter to a third of the time; from 256 rows on it takes the
same. PyTorch's own compiler emits these operators; they are not public, so their absence is reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from transformers.activations import ACT2FN

from sie_pytorch.forward.checkpoint.mapping import outside_heap
from sie_pytorch.forward.protocol import RunnerUnfitError

ACTIVATIONS = {
    "gelu": ("gelu", "none"),
    "gelu_new": ("gelu", "tanh"),
    "gelu_pytorch_tanh": ("gelu", "tanh"),
    "relu": ("relu", ""),
    "silu": ("swish", ""),
}
"""transformers' names of the activations that oneDNN fuses into a product, with oneDNN's names."""


def require_prepacking() -> None:
    """Check that this build of PyTorch has oneDNN's prepacked products.

    Raises:
        RunnerUnfitError: It has not.
    """
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        raise RunnerUnfitError("this build of PyTorch has no oneDNN")
    for operator in ("_reorder_linear_weight", "_linear_pointwise"):
        if not hasattr(torch.ops.mkldnn, operator):
            raise RunnerUnfitError(f"this version of PyTorch has no operator mkldnn::{operator}")


def row_count(tokens: int) -> int:
    """Round a number of rows up to one of eight an octave, at least 8 apart; at most an eighth is added.

    oneDNN builds and caches code for every number of rows, about a millisecond and 700 kB for each product of a layer.
    Packed batches have thousands of lengths, so the cache would grow to gigabytes. With these numbers it is bounded.
    """
    step = max(8, 1 << max(0, (tokens - 1).bit_length() - 4))
    return -(-tokens // step) * step


@dataclass(frozen=True, slots=True)
class Rows:
    """A slice of a linear layer's rows."""

    weight: torch.Tensor
    """`[out, in]`."""
    bias: torch.Tensor | None


def split_gate(layer: torch.nn.Linear) -> list[Rows]:
    """Take the first half of a layer's rows and the second apart."""
    biases = (None, None) if layer.bias is None else layer.bias.chunk(2)
    return [Rows(weight, bias) for weight, bias in zip(layer.weight.chunk(2), biases, strict=True)]


def _side_by_side(weights: Sequence[torch.Tensor], dtype: torch.dtype) -> torch.Tensor:
    if len(weights) == 1 and weights[0].dtype is dtype:
        return weights[0].contiguous()
    rows = sum(len(weight) for weight in weights)
    return torch.cat(list(weights), out=outside_heap((rows, weights[0].shape[1]), dtype))


class PackedLinear:
    """One or more linear layers over the same input as one product: `[rows, in] → [rows, sum of outs]`."""

    def __init__(
        self, layers: Sequence[torch.nn.Linear | Rows], dtype: torch.dtype, activation: str | None = None
    ) -> None:
        """Take the weights of `layers` side by side, in `dtype`; `activation` is a name of `ACTIVATIONS`.

        Raises:
            RunnerUnfitError: Only some of the layers have a bias.
        """
        biases = [layer.bias for layer in layers]
        present = [bias for bias in biases if bias is not None]
        if present and len(present) < len(biases):
            raise RunnerUnfitError("only some of its joined projections have a bias")
        weight = _side_by_side([layer.weight.detach() for layer in layers], dtype)
        self._bias = torch.cat([bias.detach() for bias in present]).to(dtype) if present else None
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight)
        self._activation = activation
        self._fused, self._algorithm = ("none", "") if activation is None else ACTIVATIONS[activation]

    def __call__(self, states: torch.Tensor, delta: torch.Tensor | None = None) -> torch.Tensor:
        """Multiply, add the bias and the LoRA delta, apply the activation."""
        if delta is None:
            return self._product(states, self._fused, self._algorithm)
        result = self._product(states, "none", "").add_(delta)
        activated: torch.Tensor = result if self._activation is None else ACT2FN[self._activation](result)
        return activated

    def add(self, states: torch.Tensor, residual: torch.Tensor, delta: torch.Tensor | None = None) -> torch.Tensor:
        """Multiply, add the bias, `residual` and the LoRA delta."""
        result: torch.Tensor = torch.ops.mkldnn._linear_pointwise.binary(
            states, residual, self._weight, self._bias, "add"
        )
        return result if delta is None else result.add_(delta)

    def _product(self, states: torch.Tensor, fused: str, algorithm: str) -> torch.Tensor:
        result: torch.Tensor = torch.ops.mkldnn._linear_pointwise(
            states, self._weight, self._bias, fused, [], algorithm
        )
        return result
