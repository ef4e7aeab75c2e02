"""Layers in their order: those after a pooling, or the projection of token states; and their weights, as files say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sie_core.contracts import ModelLoadError, PinnedFile
from sie_text.heads.vectors.layers import LayerNorm, Linear, Step, UnitLength
from sie_text.heads.weights import Weights, read_named, read_weights
from sie_text.recipe import DenseSettings, HeadSettings, LayerNormSettings, NormalizeSettings, ProjectionSettings

Unpickle = Callable[[Path, PinnedFile, Sequence[str]], Mapping[str, Weights]]
"""Reads tensors by name from a pickle that a config pins, as float32."""


class Steps:
    """Layers in their order, in float32."""

    unit_length: type[Step] = UnitLength
    """The library's scaling to unit length."""

    def __init__(self, steps: Sequence[Step], dims: int, truncate_dim: int | None = None) -> None:
        """Join the layers.

        Args:
            steps: Layers of one library.
            dims: The input size of the first.
            truncate_dim: The size that vectors are cut to at the end, if the files state one.

        Raises:
            ModelLoadError: `CONFIG`: sizes do not follow one another.
        """
        self._steps = steps
        self._scale = self.unit_length()
        self._ends_in_scale = bool(steps) and isinstance(steps[-1], self.unit_length)
        self.takes = next((step.takes for step in steps if step.takes is not None), None)
        """The dimensions of vectors it takes; None for any."""
        for step in steps:
            if step.takes not in (None, dims):
                raise ModelLoadError(
                    "CONFIG", f"A module of modules.json takes vectors of {step.takes} dimensions, and gets {dims}."
                )
            dims = dims if step.gives is None else step.gives
        self.dims = min(dims, truncate_dim or dims)
        """The dimensions of vectors it gives."""
        self._cuts = self.dims < dims
        self.memory_bytes = sum(step.memory_bytes for step in steps)
        """Bytes of the weights."""

    @classmethod
    def read(cls, settings: Sequence[HeadSettings], dims: int, truncate_dim: int | None = None) -> Steps:
        """Load the layers of a recipe in NumPy.

        Raises:
            ModelLoadError: `CORRUPT`: weights are missing or do not fit; `CONFIG`: sizes do not follow one another.
        """
        return cls([load_step(each) for each in settings], dims, truncate_dim)

    def __call__(self, vectors: Any, normalize: bool | None = None) -> Any:
        """Map float32 `[rows, any]` to `[rows, dims]`.

        Args:
            vectors: Of the library of the steps.
            normalize: Whether vectors are scaled at the end; None follows the files.
        """
        skips = self._ends_in_scale and normalize is False
        for step in self._steps[:-1] if skips else self._steps:
            vectors = step(vectors)
        vectors = vectors[:, : self.dims] if self._cuts else vectors
        return self._scale(vectors) if normalize else vectors

    def gives_unit_length(self, normalize: bool | None) -> bool:
        """Whether vectors have unit length; cut to a size that the files state, they keep only part of it."""
        return self._ends_in_scale and not self._cuts if normalize is None else normalize


def load_step(settings: HeadSettings, unpickle: Unpickle | None = None) -> Linear | LayerNorm | UnitLength:
    """Load a layer.

    Raises:
        ModelLoadError: As `load_projection`; `CORRUPT` too if weights do not have the stated sizes.
    """
    if isinstance(settings, NormalizeSettings):
        return UnitLength()
    if isinstance(settings, ProjectionSettings):
        return load_projection(settings, unpickle)
    if isinstance(settings, LayerNormSettings):
        shape = (settings.dims,)
        weights = read_weights(settings.path, {"norm.weight": shape, "norm.bias": shape})
        return LayerNorm(weights["norm.weight"], weights["norm.bias"])
    weights = read_weights(settings.path, _shapes(settings))
    bias, residual = weights.get("linear.bias"), weights.get("residual.weight")
    return Linear(weights["linear.weight"], bias, settings.activation, adds_input=settings.residual, residual=residual)


def _shapes(settings: DenseSettings) -> dict[str, tuple[int, ...]]:
    """The tensors of a Dense module."""
    whole: tuple[int, ...] = (settings.out_features, settings.in_features)
    shapes = {"linear.weight": whole}
    if settings.bias:
        shapes["linear.bias"] = whole[:1]
    if settings.residual and settings.in_features != settings.out_features:
        shapes["residual.weight"] = whole
    return shapes


def load_projection(settings: ProjectionSettings, unpickle: Unpickle | None = None) -> Linear:
    """Load a linear layer as large as its weights.

    Raises:
        ModelLoadError: `CORRUPT`: the file cannot be read, a tensor is missing, or their shapes do not fit. `CONFIG`:
            it is a pickle, and there is no `unpickle`.
    """
    names = [settings.weight] + ([settings.bias] if settings.bias else [])
    if settings.pinned is None:
        tensors: Mapping[str, Weights] = read_named(settings.file, names)
    elif unpickle is not None:
        tensors = unpickle(settings.file, settings.pinned, names)
    else:
        raise ModelLoadError(
            "CONFIG",
            f"{settings.file.name} is a Python pickle, which needs PyTorch to be read: convert it to safetensors.",
        )
    weight = tensors[settings.weight]
    bias = tensors[settings.bias] if settings.bias else None
    if weight.ndim != 2 or (bias is not None and bias.shape != weight.shape[:1]):
        raise ModelLoadError("CORRUPT", f"{settings.file.name}: {' and '.join(names)} are no linear layer's.")
    return Linear(weight, bias)
