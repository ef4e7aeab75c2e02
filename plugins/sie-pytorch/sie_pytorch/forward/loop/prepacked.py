"""Modules of PyTorch whose linear layers multiply by prepacked weights."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from sie_pytorch.forward.loop.linear import PackedLinear, require_prepacking, row_count
from sie_pytorch.forward.protocol import RunnerUnfitError


class PrepackedLinear(nn.Module):
    """A linear layer in float32 with its weight in oneDNN's layout."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self._product = PackedLinear([layer], torch.float32)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """Multiply `[…, in]`, and add the bias."""
        flat = states.reshape(-1, states.shape[-1])
        padded = F.pad(flat, (0, 0, 0, row_count(len(flat)) - len(flat)))
        return self._product(padded)[: len(flat)].view(*states.shape[:-1], -1)


def prepack(module: nn.Module) -> None:
    """Replace the plain linear layers below a float32 module on the CPU by prepacked ones, if PyTorch has these.

    A plain product rearranges the weights on few rows each time, and is half as fast on processors of AMD.
    """
    try:
        require_prepacking()
    except RunnerUnfitError:
        return
    for parent in list(module.modules()):
        for name, child in parent.named_children():
            if type(child) is nn.Linear:
                setattr(parent, name, PrepackedLinear(child))
