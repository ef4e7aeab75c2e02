"""An adapter's outputs for one item, before postprocessing and encoding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sie_core.contracts.errors import InferenceError


@dataclass(frozen=True, slots=True)
class SparseVector:
    """A sparse vector over a vocabulary of `dims` entries.

    `indices` is int32 of shape (n,), ascending and unique; `values` is float32 of shape (n,).
    """

    indices: NDArray[np.int32]
    values: NDArray[np.float32]
    dims: int | None = None


Box = tuple[float, float, float, float]
"""A box in an image: x and y of its upper left corner, width and height, in pixels."""
Span = tuple[int, int]
"""Character offsets into the item's text as the client sent it, end exclusive.

Characters are Python's: an emoji is one, and a combining mark is one of its own.
"""


@dataclass(frozen=True, slots=True)
class Entity:
    """Something named in the item: a span of its text, or a box of its image."""

    text: str
    """The item's text between the offsets, exactly; for a box, the text that was read."""
    label: str
    score: float
    _: KW_ONLY
    start: int | None = None
    """A character offset, as in `Span`; None if the entity was not found in text."""
    end: int | None = None
    bbox: Box | None = None


@dataclass(frozen=True, slots=True)
class Relation:
    """A relation between two spans of the item's text, `head` and `tail`, as written there."""

    head: str
    tail: str
    relation: str
    """The label of the relation."""
    _: KW_ONLY
    score: float
    head_span: Span | None = None
    """Distinguishes several equal texts; None if the model does not say."""
    tail_span: Span | None = None


@dataclass(frozen=True, slots=True)
class Classification:
    """One label the item as a whole was given."""

    label: str
    score: float


@dataclass(frozen=True, slots=True)
class DetectedObject:
    """Something seen in the item's image."""

    label: str
    score: float
    bbox: Box


@dataclass(slots=True)
class ItemOutput:
    """The outputs of one item; a field that the task did not ask for is None.

    `encode` fills those of `Task.output_types`, `score` fills `score`, `extract` at least one of the fields from
    `entities` on. Lists are in the order the client reads: entities and relations by their place in the text,
    classifications and objects by falling score.
    """

    dense: NDArray[np.float32] | None = None
    """Shape (dims,)."""
    sparse: SparseVector | None = None
    multivector: NDArray[np.float32] | None = None
    """Shape (tokens, token_dims)."""
    _: KW_ONLY
    score: float | None = None
    """The model's score of the item for the task's query, in no fixed range."""
    entities: tuple[Entity, ...] | None = None
    relations: tuple[Relation, ...] | None = None
    classifications: tuple[Classification, ...] | None = None
    objects: tuple[DetectedObject, ...] | None = None
    data: Mapping[str, Any] | None = None
    """Other extracted data, e.g. by `Task.output_schema`: maps, lists, strings, finite numbers."""
    normalized: bool = False
    """Whether `dense` is normalised; if so, a vector shortened to a Matryoshka size is normalised again."""
    refused: InferenceError | None = None
    """Why there is no output: only the request of this item fails, at once.

    An exception of `finish`, by contrast, fails the whole batch, which is then run again in parts.
    """
