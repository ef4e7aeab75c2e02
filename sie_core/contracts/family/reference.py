"""References for `sie verify`: libraries that compute the engine's outputs on the same weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Literal, get_args

from sie_core.contracts.backend.inference import ModelInfo
from sie_core.contracts.backend.requests import Item, Task
from sie_core.contracts.family.adapter import LoadContext
from sie_core.contracts.family.outputs import ItemOutput

Compared = Literal[
    "dense", "sparse", "multivector", "score", "entities", "relations", "classifications", "objects", "data"
]
"""Comparable outputs: fields of `ItemOutput`."""
COMPARED: tuple[Compared, ...] = get_args(Compared)


class NoReferenceError(Exception):
    """A reference cannot answer; the message tells the operator why, as the end of a sentence."""


class ReferenceModel(ABC):
    """A model that a reference library has loaded; called on one thread, after the engine has unloaded its own."""

    gives: frozenset[Compared]
    """The outputs that it computes of this model."""

    @classmethod
    @abstractmethod
    def load(cls, context: LoadContext, served: ModelInfo) -> ReferenceModel:
        """Load the weights in `context.weights` onto the CPU in float32.

        Args:
            context: The weights, their card and the model's config.
            served: How the engine serves the model: its notes, its length.

        Raises:
            NoReferenceError: The library cannot, or a comparison would be meaningless because the library itself
            serves.
            ImportError: A package is missing.
        """

    @abstractmethod
    def answer(self, items: Sequence[Item], task: Task) -> Sequence[ItemOutput]:
        """Answer `task` as the library does, each item separately; `task.options` are the profile's own.

        Raises:
            NoReferenceError: The library does not support the task.
        """

    def similarity(self, query: ItemOutput, document: ItemOutput) -> float | None:
        """Compare two of its answers by the library's own measure; None to use the dot product or MaxSim."""
        return None


@dataclass(frozen=True, slots=True)
class Reference:
    """A library that computes the outputs of families' models on the same weights."""

    name: str
    """Name for operators, e.g. `sentence-transformers`."""
    families: frozenset[str]
    """Ids of the families that it can check."""
    target: str
    """`module:Class` of a `ReferenceModel`, imported when first needed."""
    _: KW_ONLY
    gives: frozenset[Compared]
    """Outputs that it may compute; the loaded model narrows them."""
    requires: tuple[str, ...] = ()
    """Requirements for pip, e.g. `sentence-transformers>=6.2,<7`."""
