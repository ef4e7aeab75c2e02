"""What calls of many items return: results in the items' order, the items that failed, and one matrix of it all.

It knows no client.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sie_sdk.embeddings import dense_embedding
from sie_sdk.types import EncodeResult, ExtractResult, ScoreResult


@dataclass(frozen=True, slots=True)
class FailedItem:
    """An item without a result: its place among the items given, its `id` where it had one, and why.

    Of `score_many` and `score_iter`, `place` is that of the document among those of its query, and `query` the query's.
    """

    place: int
    id: str | None
    error: Exception
    query: int | None = None


@dataclass(frozen=True, slots=True)
class EncodeMany:
    """The results of `encode_many` in the order of the items; None for those of `failed`."""

    results: list[EncodeResult | None]
    failed: list[FailedItem]

    def matrix(self, *, missing: float | None = None) -> NDArray[Any]:
        """Return the dense vectors as one array, shape (items, dims), in the dtype they came in.

        Args:
            missing: What the rows of failed items hold, e.g. `np.nan`; by default a failed item is an error.

        Raises:
            ValueError: An item failed, a result has no dense vector, or the dtype has no such value as `missing`.
        """
        if missing is None:
            _refuse_failed(self.failed, len(self.results))
        rows = {place: dense_embedding(result) for place, result in enumerate(self.results) if result is not None}
        first = next(iter(rows.values()), np.zeros(0, np.float32))
        matrix: NDArray[Any] = np.full((len(self.results), *first.shape), missing or 0, first.dtype)
        for place, row in rows.items():
            matrix[place] = row
        return matrix


@dataclass(frozen=True, slots=True)
class ExtractMany:
    """The results of `extract_many` in the order of the items; None for those of `failed`."""

    results: list[ExtractResult | None]
    failed: list[FailedItem]


@dataclass(frozen=True, slots=True)
class RankedQuery:
    """One query of `score_iter`: its ranking, the documents that failed and so stand in none, and all scores."""

    result: ScoreResult
    failed: list[FailedItem]
    scores: Sequence[float]
    """Of its documents in their order; NaN for failed ones."""


@dataclass(frozen=True, slots=True)
class ScoreMany:
    """The rankings of `score_many` in the order of the queries; documents of `failed` stand in none."""

    results: list[ScoreResult]
    failed: list[FailedItem]
    _scores: list[Sequence[float]] = field(repr=False)
    """Of each query, the scores of its documents in their order; NaN for failed ones."""

    def matrix(self, *, missing: float | None = None) -> NDArray[np.float32]:
        """Return the scores as float32 of shape (queries, documents), documents in the order they were given.

        A query of fewer documents than another has NaN behind its last one.

        Args:
            missing: What stands for failed documents, e.g. `np.nan`; by default a failed document is an error.

        Raises:
            ValueError: A document failed.
        """
        if missing is None:
            _refuse_failed(self.failed, sum(map(len, self._scores)))
        matrix = np.full((len(self._scores), max(map(len, self._scores), default=0)), np.nan, np.float32)
        for row, scores in zip(matrix, self._scores, strict=True):
            row[: len(scores)] = scores
        for each in self.failed:
            matrix[each.query or 0, each.place] = missing
        return matrix


def _refuse_failed(failed: Sequence[FailedItem], count: int) -> None:
    if failed:
        first = failed[0]
        where = f"items[{first.place}]" + ("" if first.query is None else f" of queries[{first.query}]")
        raise ValueError(
            f"{len(failed)} of {count} items failed, first {where}: {first.error}; `missing` fills their places"
        ) from first.error
