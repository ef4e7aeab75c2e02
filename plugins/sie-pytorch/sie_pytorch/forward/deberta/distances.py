"""Relative positions: which row of a table each distance has, and scores by distance as scores by pair of tokens."""

from __future__ import annotations

import torch
from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position


class Distances:
    """The rows of a table of `2 * span` relative positions that the distances of a sequence have.

    Distances up to half of `buckets` have a row each; farther ones share rows, up to `farthest`.
    """

    def __init__(self, span: int, buckets: int, farthest: int) -> None:
        self._span, self._buckets, self._farthest = span, buckets, farthest
        self.own: int = (span if buckets <= 0 else min(span, buckets // 2 + 1)) - 1
        """Distances up to this one, either way, have separate, adjacent rows."""
        self.farthest: int = max(span, farthest)
        """Distances beyond it have its row, if they are `bounded`."""
        ends = self.rows(self.farthest + 1)[[0, -1]].tolist()
        self.bounded: bool = ends == [0, 2 * span - 1]
        """Whether `farthest` has the first and the last row of the table, so that no distance beyond it has another.
        With an odd number of buckets transformers' formula reaches the two only at larger distances."""

    def rising(self, table: torch.Tensor, length: int) -> torch.Tensor:
        """Take the columns of distances `1 - length` to `length - 1` out of a table `[…, 2 * span]`."""
        if self._are_own(length):
            return table[..., self._span - length + 1 : self._span + length]
        return table.index_select(-1, self.rows(length))

    def falling(self, table: torch.Tensor, length: int) -> torch.Tensor:
        """Take the columns of distances `length - 1` to `1 - length` out of a table whose columns are reversed."""
        if self._are_own(length):
            return table[..., self._span - length : self._span + length - 1]
        return table.index_select(-1, 2 * self._span - 1 - self.rows(length).flip(0))

    def _are_own(self, length: int) -> bool:
        """Whether every distance has a separate row."""
        return length - 1 <= self.own

    def rows(self, length: int) -> torch.Tensor:
        """Return the rows of distances `1 - length` to `length - 1`: int64 `[2 * length - 1]`, ascending."""
        distances = torch.arange(1 - length, length)
        if self._buckets > 0 and self._farthest > 0:
            distances = make_log_bucket_position(distances, self._buckets, self._farthest).long()
        return (distances + self._span).clamp(0, 2 * self._span - 1)


def by_distance(of_queries: torch.Tensor, of_keys: torch.Tensor, count: int, length: int) -> torch.Tensor:
    """Add what queries and keys score for each distance, as scores of pairs of tokens; nothing is gathered.

    Args:
        of_queries: `[heads, count * length, 2 * length - 1]`, contiguous; distances fall.
        of_keys: Of the same shape; distances rise.
        count: Sequences.
        length: Tokens of each.

    Returns:
        `[count, heads, length, length]`: query by key. The distance of a pair is the query's place less the key's.
    """
    heads, distances = len(of_queries), 2 * length - 1
    shape, sequence = (count, heads, length, length), (length * distances, count * length * distances)
    # The next token has the same pair one distance nearer, so each row of the view begins a column earlier.
    queries = of_queries.as_strided(shape, (*sequence, distances - 1, 1), length - 1)
    keys = of_keys.as_strided(shape, (*sequence, 1, distances - 1), length - 1)
    return queries + keys
