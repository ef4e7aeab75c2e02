"""SPLADE on the device: a weight for every entry of the vocabulary, pooled over the logits of a text's tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from sie_text import heads as host
from sie_text.heads import Upload
from sie_text.sequences import PackedBatch


class SpladeHead(host.SpladeHead):
    """Runs the vocabulary's layer over a few tokens at a time, and keeps only the pooled result of each text."""

    def _join(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        """Join tensors along their first axis."""
        return torch.cat(tuple(parts))

    def _zeros(self, texts: int, states: torch.Tensor) -> torch.Tensor:
        """Make float32 zeros `[texts, vocabulary]` where the states are."""
        return torch.zeros((texts, self.dims), dtype=torch.float32, device=states.device)

    def _take(self, pooled: torch.Tensor, logits: torch.Tensor) -> None:
        """Add some tokens of a text to its pooled result, `[vocabulary]`."""
        if self._settings.pooling == "max":
            torch.maximum(pooled, logits.amax(0).float(), out=pooled)
        else:
            pooled += self._weigh(logits.float().relu_()).sum(0)

    def _weigh(self, logits: torch.Tensor) -> torch.Tensor:
        """Turn logits from 0 on into weights, in place."""
        weights = logits.log1p_()
        return weights.log1p_() if self._settings.activation == "log1p_relu" else weights

    def _entries(self, weights: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Find the entries of `[texts, vocabulary]` that are not zero, row by row."""
        rows, indices = weights.nonzero(as_tuple=True)
        counts = torch.bincount(rows, minlength=len(weights))
        return counts, indices.int(), weights[rows, indices]


@dataclass(frozen=True, slots=True)
class Segments:
    """The texts of a batch."""

    bounds: list[int]
    """`[texts + 1]`: the start of each, and the number of all tokens last."""
    lengths: Any
    """int64 `[texts]`, where the states are."""


class SegmentedSpladeHead(SpladeHead):
    """Pools all texts of a chunk at once, and leaves the search for entries to a thread that may wait for the device.

    On a CPU, the pooling by segments takes seven times as long as text by text.
    """

    def lay_out(self, batch: PackedBatch, upload: Upload) -> Segments:
        """Send the lengths of the texts."""
        (lengths,) = upload([batch.lengths])
        return Segments(batch.cu_seqlens.tolist(), lengths)

    def compute(self, states: torch.Tensor, layout: Segments, choice: None) -> Sequence[torch.Tensor]:
        """Turn flat states into pooled weights `[texts, vocabulary]`, of as many texts at a time as a chunk has."""
        return tuple(self._segments(states, layout))

    def narrow(self, computed: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        """Find the entries; see `SpladeHead.compute`."""
        counts, indices, values = zip(*map(self._entries, computed), strict=True)
        return tuple(map(self._join, (counts, indices, values)))

    def _segments(self, states: torch.Tensor, layout: Segments) -> Iterator[torch.Tensor]:
        done = 0
        for group in self._groups(layout.bounds):
            start, stop, texts = group[0], group[-1], len(group) - 1
            if stop - start > self._chunk:  # one text beyond a chunk
                yield from self._pooled(states, group)
            else:
                yield self._pool(self._head(states[start:stop]), layout.lengths[done : done + texts])
            done += texts

    def _pool(self, logits: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Pool `[tokens, vocabulary]` to float32 weights `[texts, vocabulary]`. Lengths checked would be a wait."""
        if self._settings.pooling == "max":
            largest = torch.segment_reduce(logits, "max", lengths=lengths, unsafe=True, initial=0)
            return self._weigh(largest.float())
        return torch.segment_reduce(self._weigh(logits.float().relu_()), "sum", lengths=lengths, unsafe=True, initial=0)
