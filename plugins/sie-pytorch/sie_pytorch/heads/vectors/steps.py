"""The layers that map vectors to vectors, as modules of PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from sie_text import heads as host
from sie_text.recipe import HeadSettings, ProjectionSettings
from torch import nn

from sie_core.contracts import PinnedFile
from sie_pytorch.heads.weights import read_pinned


class LinearStep(nn.Module):
    """A linear layer, an activation and, if the files ask for it, a residual connection."""

    def __init__(self, step: host.Linear) -> None:
        super().__init__()
        self.takes, self.gives, self.memory_bytes = step.takes, step.gives, step.memory_bytes
        self.weight, self.bias, self.residual = map(_parameter, (step.weight, step.bias, step.residual))
        self.activation: nn.Module = getattr(nn, step.activation)()
        self.adds_input = step.adds_input

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        """Project `[rows, takes]` to `[rows, gives]`."""
        assert self.weight is not None
        output: torch.Tensor = self.activation(F.linear(vectors, self.weight, self.bias))
        if not self.adds_input:
            return output
        return output + (vectors if self.residual is None else F.linear(vectors, self.residual))


class LayerNormStep(nn.Module):
    """A layer norm."""

    def __init__(self, step: host.LayerNorm) -> None:
        super().__init__()
        self.takes, self.gives, self.memory_bytes = step.takes, step.gives, step.memory_bytes
        self.weight, self.bias = _parameter(step.weight), _parameter(step.bias)
        self.epsilon = step.epsilon

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        """Normalise `[rows, dims]`, each row on its own."""
        return F.layer_norm(vectors, (self.takes,), self.weight, self.bias, self.epsilon)


class UnitLengthStep(nn.Module):
    """Scaling to unit length."""

    takes = gives = None
    memory_bytes = 0

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        """Scale `[rows, dims]`."""
        return F.normalize(vectors, dim=1)


class Steps(host.Steps):
    """The layers in their order, in float32."""

    unit_length = UnitLengthStep

    @classmethod
    def load(
        cls, settings: Sequence[HeadSettings], dims: int, device: torch.device, truncate_dim: int | None = None
    ) -> Steps:
        """Load them onto `device`; `dims` is the input size of the first.

        Raises:
            ModelLoadError: `CORRUPT`: weights are missing or do not fit; `CONFIG`: sizes do not follow one another.
        """
        return cls([_load(each).to(device) for each in settings], dims, truncate_dim)


def _load(settings: HeadSettings) -> LinearStep | LayerNormStep | UnitLengthStep:
    step = host.load_step(settings, _unpickle)
    if isinstance(step, host.Linear):
        return LinearStep(step)
    return LayerNormStep(step) if isinstance(step, host.LayerNorm) else UnitLengthStep()


def load_projection(settings: ProjectionSettings) -> LinearStep:
    """Load a linear layer as large as its weights, onto the CPU.

    Raises:
        ModelLoadError: `CORRUPT`: the file cannot be read, a tensor is missing, or their shapes do not fit.
    """
    return LinearStep(host.load_projection(settings, _unpickle))


def _unpickle(file: Path, pinned: PinnedFile, names: Sequence[str]) -> dict[str, NDArray[np.float32]]:
    return {name: tensor.numpy() for name, tensor in read_pinned(file, pinned, names).items()}


def _parameter(array: NDArray[np.float32] | None) -> nn.Parameter | None:
    return None if array is None else nn.Parameter(torch.from_numpy(array), requires_grad=False)
