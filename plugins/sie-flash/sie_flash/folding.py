"""Moves biases to where they cost nothing, so that a product adds to the residual in one launch.

In a post-norm model, a part's output is added to its input: `x + a W + b`. With `b` moved into the bias of the norm
that produces `x`, only the product is left to add. The other product over `x` compensates for the shift in its own
bias.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from sie_pytorch.forward import LoopLayer, Norm

from sie_flash.attention import VarlenAttention
from sie_flash.products import FusedLinear, FusedUpProjection

LARGEST = 1.0
"""Largest bias that is moved, as a multiple of the norm's largest weight.

A moved bias is rounded together with the norm's output, and subtracted through the next product's bias: with three
biases of 30, states in float16 would be 2.6 times as far from float32.
"""


@dataclass(frozen=True, slots=True)
class Shifts:
    """Shifts of the inputs of one layer's products by moved biases: `[hidden]` each; None if nothing moved."""

    attention: torch.Tensor | None
    """Shift of the input of queries, keys and values.

    No norm of the first layer adds it: it is added to the embeddings.
    """
    feed_forward: torch.Tensor | None
    """Shift of the input of the up-projection."""


def move_biases(layers: Sequence[LoopLayer]) -> list[Shifts]:
    """Move the biases of post-norm layers; other layers keep theirs. The source model stays unchanged."""
    shifts = []
    before: Norm | None = None
    for layer in layers:
        attention, up_projection = layer.attention, layer.up_projection
        assert isinstance(attention, VarlenAttention)
        assert isinstance(up_projection, FusedUpProjection)
        if layer.is_pre:
            shifts.append(Shifts(None, None))
            continue
        first = _moved(layer.attention_output, before, attention.qkv)
        shifts.append(Shifts(first, _moved(layer.down, layer.attention_norm, up_projection.product)))
        before = layer.output_norm
    return shifts


def _moved(source: object, norm: Norm | None, other: FusedLinear) -> torch.Tensor | None:
    """Move the bias of `source` into `norm`, which produces the input of `other`; return the shift of that input."""
    assert isinstance(source, FusedLinear)
    bias = source.bias
    if bias is None or (norm is not None and norm.is_rms):
        return None
    if not bias.is_meta and bias.abs().max() > LARGEST * (1.0 if norm is None else norm.largest):
        return None
    shift = bias.float()
    if norm is not None:
        before = torch.zeros_like(bias) if norm.bias is None else norm.bias
        norm.bias = before + bias
        shift = norm.bias.float() - before.float()  # with the rounding of the moved bias
    source.bias = None
    own = 0 if other.bias is None else other.bias.float()
    other.bias = (own - shift @ other.weight.float()).to(bias.dtype)
    return shift.to(bias.dtype)
