"""SPLADE: a weight for every entry of the vocabulary, pooled over the logits of a text's tokens.

The definition follows `SpladePooling` of sentence-transformers 6 (arXiv 2107.05720 for the sum, 2109.10086 for the
largest, 2504.14839 for the second logarithm).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import torch
from numpy.typing import NDArray
from sie_text.recipe import SpladeSettings
from sie_text.sequences import PackedBatch, TokenSequence
from sie_text.sparse import sparse_outputs

from sie_core.contracts import ItemOutput
from sie_pytorch.heads.own_class.masked_language import MaskedLanguageHead
from sie_pytorch.heads.pooling import Upload
from sie_pytorch.heads.protocol import Head, Output

CHUNK_ENTRIES = 1 << 25
"""Logits that are held at a time: 128 MiB in float32, of 1 099 tokens with BERT's vocabulary."""


class SpladeHead(Head):
    """Runs the vocabulary's layer over a few tokens at a time, and keeps only the pooled result of each text.

    Only nonzero entries are copied from the device to the host. Only the device knows their number: unlike other heads,
    this one waits for it.
    """

    output: Output = "sparse"

    def __init__(self, settings: SpladeSettings, head: MaskedLanguageHead, chunk_entries: int = CHUNK_ENTRIES) -> None:
        self._settings = settings
        self._head = head
        self._chunk = max(1, chunk_entries // head.vocabulary)
        self.dims = head.vocabulary
        self.memory_bytes = head.memory_bytes

    def lay_out(self, batch: PackedBatch, upload: Upload) -> list[int]:
        """The start of each text, and the number of all tokens."""
        bounds: list[int] = batch.cu_seqlens.tolist()
        return bounds

    def compute(self, states: torch.Tensor, layout: list[int], choice: None) -> tuple[torch.Tensor, ...]:
        """Turn flat states into entries: their number per text, their indices, and their float32 weights."""
        counts, indices, values = zip(*(_entries(rows) for rows in self._pooled(states, layout)), strict=True)
        return torch.cat(counts), torch.cat(indices), torch.cat(values)

    def finish(
        self, sequences: Sequence[TokenSequence], layout: list[int], arrays: Sequence[NDArray[Any]], choice: None
    ) -> list[ItemOutput]:
        """Hand each text its entries."""
        default = self._settings.max_active_dims
        most = [default if each.max_active_dims is None else each.max_active_dims for each in sequences]
        return sparse_outputs(arrays, most, self.dims)

    def _pooled(self, states: torch.Tensor, bounds: list[int]) -> Iterator[torch.Tensor]:
        """Yield float32 weights `[texts, vocabulary]` of as many texts at a time as the bound on tokens allows."""
        for group in _groups(bounds, self._chunk):
            start, stop = group[0], group[-1]
            pooled = torch.zeros((len(group) - 1, self.dims), dtype=torch.float32, device=states.device)
            for low in range(start, stop, self._chunk):
                high = min(low + self._chunk, stop)
                logits = self._head(states[low:high])
                for row, (first, end) in enumerate(pairwise(group)):
                    if first < high and low < end:
                        self._take(pooled[row], logits[max(first, low) - low : min(end, high) - low])
            yield self._weigh(pooled) if self._settings.pooling == "max" else pooled

    def _take(self, pooled: torch.Tensor, logits: torch.Tensor) -> None:
        """Add some tokens of a text to its pooled result, `[vocabulary]`."""
        if self._settings.pooling == "max":
            # Weights rise with logits: the largest weight belongs to the largest logit, and pooled values are never
            # below 0.
            torch.maximum(pooled, logits.amax(0).float(), out=pooled)
        else:
            pooled += self._weigh(logits.float().relu_()).sum(0)

    def _weigh(self, logits: torch.Tensor) -> torch.Tensor:
        """Turn logits from 0 on into weights, in place."""
        weights = logits.log1p_()
        return weights.log1p_() if self._settings.activation == "log1p_relu" else weights


def _groups(bounds: list[int], most: int) -> Iterator[list[int]]:
    """Cut the bounds of texts into groups of up to `most` tokens; a longer text forms a group alone."""
    group = bounds[:1]
    for bound in bounds[1:]:
        if len(group) > 1 and bound - group[0] > most:
            yield group
            group = group[-1:]
        group.append(bound)
    yield group


def _entries(weights: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Find the entries of `[texts, vocabulary]` that are not zero, row by row."""
    rows, indices = weights.nonzero(as_tuple=True)
    counts = torch.bincount(rows, minlength=len(weights))
    return counts, indices.int(), weights[rows, indices]
