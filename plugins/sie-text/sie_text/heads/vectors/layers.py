"""The layers that map vectors to vectors, row by row, in NumPy."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, Protocol

import numpy as np

from sie_text.heads.weights import Weights
from sie_text.labels import ACTIVATIONS

LEAST_LENGTH = 1e-12
"""Lower bound of the norm that a vector is divided by, as in PyTorch's `normalize`."""


class Step(Protocol):
    """A layer of any library."""

    @property
    def takes(self) -> int | None:
        """Dimensions of its input; None for any."""

    @property
    def gives(self) -> int | None:
        """Dimensions of its output; None for those of its input."""

    @property
    def memory_bytes(self) -> int:
        """Bytes of its weights."""

    def __call__(self, vectors: Any) -> Any:
        """Map float32 `[rows, takes]` to `[rows, gives]`."""


@dataclass(frozen=True, slots=True)
class Linear:
    """A linear layer, an activation and, if the files ask for it, a residual connection."""

    weight: Weights
    """`[gives, takes]`."""
    bias: Weights | None = None
    """`[gives]`."""
    activation: str = "Identity"
    """A name of `sie_text.labels.ACTIVATIONS`."""
    _: KW_ONLY
    adds_input: bool = False
    residual: Weights | None = None
    """`[gives, takes]`: maps the added input; None where the sizes are equal."""

    @property
    def takes(self) -> int:
        """Columns of the weight."""
        return int(self.weight.shape[1])

    @property
    def gives(self) -> int:
        """Rows of the weight."""
        return int(self.weight.shape[0])

    @property
    def memory_bytes(self) -> int:
        """Bytes of the weights."""
        return sum(each.nbytes for each in (self.weight, self.bias, self.residual) if each is not None)

    def __call__(self, vectors: Weights) -> Weights:
        """Project `[rows, takes]` to `[rows, gives]`."""
        output = vectors @ self.weight.T
        if self.bias is not None:
            output += self.bias
        output = ACTIVATIONS[self.activation](output)
        if not self.adds_input:
            return output
        return output + (vectors if self.residual is None else vectors @ self.residual.T)


@dataclass(frozen=True, slots=True)
class LayerNorm:
    """A layer norm."""

    weight: Weights
    """`[dims]`."""
    bias: Weights | None = None
    """`[dims]`."""
    epsilon: float = 1e-5
    """PyTorch's default."""
    _: KW_ONLY
    gives: None = None

    @property
    def takes(self) -> int:
        """Entries of the weight."""
        return len(self.weight)

    @property
    def memory_bytes(self) -> int:
        """Bytes of the weights."""
        return self.weight.nbytes + (0 if self.bias is None else self.bias.nbytes)

    def __call__(self, vectors: Weights) -> Weights:
        """Normalise `[rows, dims]`, each row on its own."""
        centred = vectors - vectors.mean(axis=1, keepdims=True)
        variance = np.square(centred).mean(axis=1, keepdims=True)
        output: Weights = centred / np.sqrt(variance + self.epsilon) * self.weight
        return output if self.bias is None else output + self.bias


@dataclass(frozen=True, slots=True)
class UnitLength:
    """Scaling to unit length."""

    takes: None = None
    gives: None = None
    memory_bytes: int = 0

    def __call__(self, vectors: Weights) -> Weights:
        """Scale `[rows, dims]`."""
        lengths: Weights = np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), LEAST_LENGTH)
        return vectors / lengths
