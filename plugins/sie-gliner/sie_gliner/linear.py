"""Linear layers as functions: over weights that oneDNN holds in its own layout on a CPU, plain ones elsewhere.

PyTorch's own product runs at half of oneDNN's speed on processors of AMD, and rearranges the weights each time on few
rows. PyTorch's compiler emits these operators; they are not public, so plain products stand in where they are missing.
It knows tensors, no model.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch.nn import functional

FUSED = {None: ("none", ""), "gelu": ("gelu", "none"), "relu": ("relu", "")}
"""What oneDNN calls the activations it computes within a product."""
OPERATORS = ("_reorder_linear_weight", "_linear_pointwise")


class Linear(Protocol):
    """A product with a weight, and what follows it."""

    def __call__(self, rows: torch.Tensor, added: torch.Tensor | None = None) -> torch.Tensor:
        """Multiply `[rows, in]`, add the bias, then activate, or add `[rows, out]` where there is no activation."""
        ...


def linear(weight: torch.Tensor, bias: torch.Tensor | None, activation: str | None = None) -> Linear:
    """Make a layer of a weight `[out, in]` where it lies; `activation` is a key of `FUSED`."""
    kind = _Packed if weight.device.type == "cpu" and weight.dtype == torch.float32 and _has_prepacking() else _Plain
    return kind(weight.detach(), None if bias is None else bias.detach(), activation)


def padded_count(rows: int) -> int:
    """Round a number of rows up to one of eight an octave, at least 8 apart; at most an eighth is added.

    oneDNN builds code for every number of rows it meets: over the lengths that clients send it would not end.
    """
    step = max(8, 1 << max(0, (rows - 1).bit_length() - 4))
    return -(-rows // step) * step


def padded(rows: torch.Tensor) -> torch.Tensor:
    """Add rows of zeros up to `padded_count`."""
    return functional.pad(rows, (0, 0, 0, padded_count(len(rows)) - len(rows)))


def _has_prepacking() -> bool:
    operators = torch.ops.mkldnn
    return torch.backends.mkldnn.is_available() and all(hasattr(operators, name) for name in OPERATORS)  # type: ignore[no-untyped-call]


class _Packed:
    """Over a weight that is laid out once."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None, activation: str | None) -> None:
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous())
        self._bias = bias
        self._fused, self._algorithm = FUSED[activation]

    def __call__(self, rows: torch.Tensor, added: torch.Tensor | None = None) -> torch.Tensor:
        product = torch.ops.mkldnn._linear_pointwise
        result: torch.Tensor = (
            product(rows, self._weight, self._bias, self._fused, [], self._algorithm)
            if added is None
            else product.binary(rows, added, self._weight, self._bias, "add")
        )
        return result


class _Plain:
    """Over a weight as it is."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None, activation: str | None) -> None:
        self._weight, self._bias = weight, bias
        self._activate = {None: None, "gelu": functional.gelu, "relu": functional.relu}[activation]

    def __call__(self, rows: torch.Tensor, added: torch.Tensor | None = None) -> torch.Tensor:
        result = functional.linear(rows, self._weight, self._bias)
        if added is not None:
            return result.add_(added)
        return result if self._activate is None else self._activate(result)
