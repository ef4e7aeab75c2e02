"""Brings a model to its device in the precision asked for, as far as its probabilities bear it.

It knows tensors and a probe, no text.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import nn

from sie_gliner.batches import OnHost

DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}
HALVES = {"float16": ("float16", "bfloat16"), "bfloat16": ("bfloat16",), "float32": ()}
"""What to try for the precision asked for, best first; float32 is what remains."""
MOST = 0.05
"""How far a probability of the probe may be from float32's."""


def place(
    model: nn.Module, asked: str, device: torch.device, probe: Callable[[nn.Module, torch.device], OnHost]
) -> tuple[nn.Module, str, str | None]:
    """Move a float32 model from the CPU to `device`; return it, its precision, and why that is not the one asked for.

    Half precision is for CUDA: on CPUs and on Apple's GPUs the layers around the encoder gain nothing by it.

    Raises:
        RuntimeError: PyTorch's own, for want of memory among others.
    """
    if device.type != "cuda":
        note = None if asked == "float32" else f"float32 instead of {asked}: for {device.type} there is no other"
        return model.to(device), "float32", note
    expected = _probabilities(probe(model, torch.device("cpu")))
    for name in HALVES[asked]:
        half = copy.deepcopy(model).to(device, DTYPES[name])
        if torch.allclose(_probabilities(probe(half, device)), expected, rtol=0, atol=MOST):
            return half, name, None if name == asked else f"{name} instead of {asked}, in which probabilities move"
    note = None if asked == "float32" else f"float32 instead of {asked}, in which probabilities move"
    return model.to(device), "float32", note


def _probabilities(results: OnHost) -> torch.Tensor:
    return torch.from_numpy(next(iter(results.wait().values())))
