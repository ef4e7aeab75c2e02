"""From flat states to embeddings: the pooling and head modules of a recipe, on the device, in float32.

It knows no tokenizer and no transformer.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from sie_core.contracts import ModelLoadError
from sie_pytorch.pooling import Spans, pool
from sie_pytorch.recipe import DenseSettings, HeadSettings, LayerNormSettings, NormalizeSettings, PoolingMode, Recipe
from sie_pytorch.weights import read_weights


@dataclass(frozen=True, slots=True)
class HeadChoice:
    """What a request may change of a head; the inference key of text encoders."""

    modes: tuple[PoolingMode, ...]
    normalize: bool | None = None
    """Whether vectors leave with unit length; None does what the weights' files say."""


class DenseStep(nn.Module):
    """A linear layer, an activation and, where the files ask for it, the input added to the result."""

    def __init__(self, settings: DenseSettings) -> None:
        super().__init__()
        self.linear = nn.Linear(settings.in_features, settings.out_features, bias=settings.bias)
        self.activation: nn.Module = getattr(nn, settings.activation)()
        self.adds_input = settings.residual
        self.residual: nn.Module = nn.Identity()
        if settings.residual and settings.in_features != settings.out_features:
            self.residual = nn.Linear(settings.in_features, settings.out_features, bias=False)

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        """Project `[rows, in_features]` to `[rows, out_features]`."""
        output: torch.Tensor = self.activation(self.linear(vectors))
        return output + self.residual(vectors) if self.adds_input else output


class LayerNormStep(nn.Module):
    """A layer norm."""

    def __init__(self, settings: LayerNormSettings) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(settings.dims)

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        """Normalise `[rows, dims]`, each row on its own."""
        output: torch.Tensor = self.norm(vectors)
        return output


class UnitLengthStep(nn.Module):
    """Scaling to unit length."""

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        """Scale `[rows, dims]`."""
        return F.normalize(vectors, dim=1)


class Head:
    """Pools, then applies the head modules in their order."""

    def __init__(self, recipe: Recipe, hidden_size: int, device: torch.device) -> None:
        """Load the head modules onto `device`.

        Raises:
            ModelLoadError: `CORRUPT`: weights are missing or do not fit; `CONFIG`: sizes do not follow one another.
        """
        self._steps = [_load(settings).to(device) for settings in recipe.head]
        self._hidden_size = hidden_size
        self._input_dims = next((dims for step in recipe.head if (dims := _input_dims(step))), None)
        self._ends_in_unit_length = bool(recipe.head) and isinstance(recipe.head[-1], NormalizeSettings)
        self._full_dims = self._check_dims(recipe)
        self.default = HeadChoice(recipe.pooling.modes)
        self.dims = min(self._full_dims, recipe.truncate_dim or self._full_dims)

    def fits(self, modes: tuple[PoolingMode, ...]) -> bool:
        """Whether the head modules take what pooling by `modes` gives."""
        return self._input_dims in (None, len(modes) * self._hidden_size)

    def unit_length(self, choice: HeadChoice) -> bool:
        """Whether vectors leave with unit length: cut to a size of the files', they keep only part of it."""
        if choice.normalize is not None:
            return choice.normalize
        return self._ends_in_unit_length and self.dims == self._full_dims

    def __call__(self, states: torch.Tensor, spans: Spans, choice: HeadChoice) -> torch.Tensor:
        """Turn flat states `[total_tokens, hidden]` into float32 embeddings `[sequences, dims]`.

        Pooling by more or fewer modes than the files', where no module after it minds, gives more or fewer dimensions.
        """
        vectors = pool(states, spans, choice.modes)
        skips_last = self._ends_in_unit_length and choice.normalize is False
        for step in self._steps[:-1] if skips_last else self._steps:
            vectors = step(vectors)
        if self.dims < self._full_dims:
            vectors = vectors[:, : self.dims]
        return F.normalize(vectors, dim=1) if choice.normalize else vectors

    @property
    def memory_bytes(self) -> int:
        """What the head's weights take."""
        return sum(weight.nbytes for step in self._steps for weight in step.parameters())

    def _check_dims(self, recipe: Recipe) -> int:
        dims = len(recipe.pooling.modes) * self._hidden_size
        for settings in recipe.head:
            wanted = _input_dims(settings)
            if wanted not in (None, dims):
                raise ModelLoadError(
                    "CONFIG", f"A module of modules.json takes vectors of {wanted} dimensions, and gets {dims}."
                )
            dims = settings.out_features if isinstance(settings, DenseSettings) else dims
        return dims


def _input_dims(settings: HeadSettings) -> int | None:
    if isinstance(settings, DenseSettings):
        return settings.in_features
    return settings.dims if isinstance(settings, LayerNormSettings) else None


def _load(settings: HeadSettings) -> nn.Module:
    if isinstance(settings, NormalizeSettings):
        return UnitLengthStep()
    step = DenseStep(settings) if isinstance(settings, DenseSettings) else LayerNormStep(settings)
    shapes = {name: tuple(weight.shape) for name, weight in step.state_dict().items()}
    step.load_state_dict(read_weights(settings.path, shapes))
    return step.eval().requires_grad_(False)
