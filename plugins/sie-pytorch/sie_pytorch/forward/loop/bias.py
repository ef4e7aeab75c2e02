"""Biases of attention scores that depend on the distance of two tokens (arXiv 1910.10683, section 2.1)."""

from __future__ import annotations

import math

import torch


class RelativeBias:
    """A number for each head and distance; near distances have their own, farther ones share one in buckets."""

    def __init__(self, table: torch.Tensor, farthest: int) -> None:
        """Look up every distance once.

        Args:
            table: `[buckets, heads]`: the first half is of keys before the query, the other of those after it.
            farthest: Distance from which all share the last bucket.
        """
        self.farthest = farthest
        """Distance from which all have the same bias."""
        distances = torch.arange(-farthest, farthest + 1, device=table.device)
        self.by_distance = table.detach()[buckets_of(distances, len(table), farthest)].T.contiguous()
        """`[heads, 2 * farthest + 1]`, by the place of the key minus that of the query."""

    def within(self, length: int, dtype: torch.dtype) -> torch.Tensor:
        """Return the biases within a sequence: `[heads, queries, keys]`, both `length`."""
        places = torch.arange(length, device=self.by_distance.device)
        distances = (places - places[:, None]).clamp(-self.farthest, self.farthest)
        return self.by_distance[:, distances + self.farthest].to(dtype)


def buckets_of(distances: torch.Tensor, buckets: int, farthest: int) -> torch.Tensor:
    """Return the bucket of each distance, that of the key minus that of the query.

    Half of the buckets are of either direction. Half of those are of one distance each; the others grow by a constant
    factor up to `farthest`.
    """
    directed = buckets // 2
    single = directed // 2
    size = distances.abs()
    # The logarithm is computed in float32, as it was in training: at the edges another one would round elsewhere.
    grown = torch.log(size.clamp(min=1).float() / single) / math.log(farthest / single) * (directed - single)
    shared = (single + grown.long()).clamp(max=directed - 1)
    return torch.where(size < single, size, shared) + directed * (distances > 0)
