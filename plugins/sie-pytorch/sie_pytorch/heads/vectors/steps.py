"""The layers that turn vectors into vectors, row by row: what follows a pooling, or projects the states of tokens."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from sie_text.recipe import DenseSettings, HeadSettings, LayerNormSettings, NormalizeSettings, ProjectionSettings
from torch import nn

from sie_core.contracts import ModelLoadError
from sie_pytorch.heads.weights import read_named, read_pinned, read_weights


class DenseStep(nn.Module):
    """A linear layer, an activation and, if the files ask for it, a residual connection."""

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


class Steps:
    """The layers in their order, in float32."""

    def __init__(self, settings: Sequence[HeadSettings], dims: int, device: torch.device) -> None:
        """Load them onto `device`; `dims` is the input size of the first.

        Raises:
            ModelLoadError: `CORRUPT`: weights are missing or do not fit; `CONFIG`: sizes do not follow one another.
        """
        self._steps = [_load(each).to(device) for each in settings]
        self.ends_in_unit_length = bool(settings) and isinstance(settings[-1], NormalizeSettings)
        sizes = [_sizes(step) for step in self._steps]
        self.takes = next((taken for taken, _ in sizes if taken is not None), None)
        """The dimensions of vectors it takes; None for any."""
        for taken, given in sizes:
            if taken not in (None, dims):
                raise ModelLoadError(
                    "CONFIG", f"A module of modules.json takes vectors of {taken} dimensions, and gets {dims}."
                )
            dims = dims if given is None else given
        self.dims = dims
        """The dimensions of vectors it gives."""

    def __call__(self, vectors: torch.Tensor, *, without_last: bool = False) -> torch.Tensor:
        """Apply them to float32 `[rows, dims]`."""
        for step in self._steps[:-1] if without_last else self._steps:
            vectors = step(vectors)
        return vectors

    @property
    def memory_bytes(self) -> int:
        """Bytes of the weights."""
        return sum(weight.nbytes for step in self._steps for weight in step.parameters())


def _sizes(step: nn.Module) -> tuple[int | None, int | None]:
    """Return the input and output dimensions of a step; None if it accepts any and changes none."""
    if isinstance(step, DenseStep):
        return step.linear.in_features, step.linear.out_features
    if isinstance(step, nn.Linear):
        return step.in_features, step.out_features
    return (step.norm.normalized_shape[0], None) if isinstance(step, LayerNormStep) else (None, None)


def _load(settings: HeadSettings) -> nn.Module:
    if isinstance(settings, NormalizeSettings):
        return UnitLengthStep()
    if isinstance(settings, ProjectionSettings):
        return load_projection(settings)
    step = DenseStep(settings) if isinstance(settings, DenseSettings) else LayerNormStep(settings)
    shapes = {name: tuple(weight.shape) for name, weight in step.state_dict().items()}
    step.load_state_dict(read_weights(settings.path, shapes))
    return step.eval().requires_grad_(False)


def load_projection(settings: ProjectionSettings) -> nn.Linear:
    """Load a linear layer as large as its weights.

    Raises:
        ModelLoadError: `CORRUPT`: the file cannot be read, a tensor is missing, or their shapes do not fit.
    """
    names = [settings.weight] + ([settings.bias] if settings.bias else [])
    if settings.pinned is None:
        tensors = read_named(settings.file, names)
    else:
        tensors = read_pinned(settings.file, settings.pinned, names)
    weight = tensors[settings.weight]
    bias = tensors[settings.bias] if settings.bias else None
    if weight.ndim != 2 or (bias is not None and bias.shape != weight.shape[:1]):
        raise ModelLoadError("CORRUPT", f"{settings.file.name}: {' and '.join(names)} are no linear layer's.")
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
    layer.load_state_dict({"weight": weight} | ({} if bias is None else {"bias": bias}), assign=True)
    return layer.eval().requires_grad_(False)
