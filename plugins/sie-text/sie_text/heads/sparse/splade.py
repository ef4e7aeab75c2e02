"""SPLADE: a weight for every entry of the vocabulary, pooled over the logits of a text's tokens.

The definition follows `SpladePooling` of sentence-transformers 6 (arXiv 2107.05720 for the sum, 2109.10086 for the
largest, 2504.14839 for the second logarithm).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sie_core.contracts import ItemOutput
from sie_text.heads.protocol import Head, Output
from sie_text.heads.spans import Upload
from sie_text.recipe import SpladeSettings
from sie_text.sequences import PackedBatch, TokenSequence
from sie_text.sparse import sparse_outputs

CHUNK_ENTRIES = 1 << 25
"""Logits that are held at a time: 128 MiB in float32, of 1 099 tokens with BERT's vocabulary."""


class VocabularyLayer(Protocol):
    """A masked-language-modelling head of any library."""

    dims: int
    """Entries of the vocabulary."""
    memory_bytes: int
    """Bytes of its weights."""

    def __call__(self, states: Any, /) -> Any:
        """Turn `[tokens, hidden]` into logits `[tokens, vocabulary]`."""


class SpladeHead(Head):
    """Runs the vocabulary's layer over a few tokens at a time, and keeps only the pooled result of each text.

    Only nonzero entries are copied from a device to the host.
    """

    output: Output = "sparse"

    def __init__(self, settings: SpladeSettings, head: VocabularyLayer, chunk_entries: int = CHUNK_ENTRIES) -> None:
        self._settings = settings
        self._head = head
        self._chunk = max(1, chunk_entries // head.dims)
        self.dims = head.dims
        self.memory_bytes = head.memory_bytes

    def lay_out(self, batch: PackedBatch, upload: Upload) -> Any:
        """The start of each text, and the number of all tokens."""
        return batch.cu_seqlens.tolist()

    def compute(self, states: Any, layout: Any, choice: None) -> Sequence[Any]:
        """Turn flat states into entries: their number per text, their indices, and their float32 weights."""
        counts, indices, values = zip(*(self._entries(rows) for rows in self._pooled(states, layout)), strict=True)
        return tuple(map(self._join, (counts, indices, values)))

    def finish(
        self, sequences: Sequence[TokenSequence], layout: Any, arrays: Sequence[NDArray[Any]], choice: None
    ) -> list[ItemOutput]:
        """Hand each text its entries."""
        default = self._settings.max_active_dims
        most = [default if each.max_active_dims is None else each.max_active_dims for each in sequences]
        return sparse_outputs(arrays, most, self.dims)

    def _pooled(self, states: Any, bounds: list[int]) -> Iterator[Any]:
        """Yield float32 weights `[texts, vocabulary]` of as many texts at a time as the bound on tokens allows."""
        for group in self._groups(bounds):
            start, stop = group[0], group[-1]
            pooled = self._zeros(len(group) - 1, states)
            for low in range(start, stop, self._chunk):
                high = min(low + self._chunk, stop)
                logits = self._head(states[low:high])
                for row, (first, end) in enumerate(pairwise(group)):
                    if first < high and low < end:
                        self._take(pooled[row], logits[max(first, low) - low : min(end, high) - low])
            yield self._weigh(pooled) if self._settings.pooling == "max" else pooled

    def _groups(self, bounds: list[int]) -> Iterator[list[int]]:
        """Cut the bounds of texts into groups of up to a chunk's tokens; a longer text forms a group alone."""
        group = bounds[:1]
        for bound in bounds[1:]:
            if len(group) > 1 and bound - group[0] > self._chunk:
                yield group
                group = group[-1:]
            group.append(bound)
        yield group

    # What differs between libraries:

    def _join(self, parts: Sequence[Any]) -> Any:
        """Join arrays along their first axis."""
        return np.concatenate(parts)

    def _zeros(self, texts: int, states: Any) -> Any:
        """Make float32 zeros `[texts, vocabulary]` where the states are."""
        return np.zeros((texts, self.dims), dtype=np.float32)

    def _take(self, pooled: Any, logits: Any) -> None:
        """Add some tokens of a text to its pooled result, `[vocabulary]`."""
        if self._settings.pooling == "max":
            # Weights rise with logits: the largest weight belongs to the largest logit, and pooled values are never
            # below 0.
            np.maximum(pooled, logits.max(0), out=pooled)
        else:
            pooled += self._weigh(np.maximum(logits, 0)).sum(0)

    def _weigh(self, logits: Any) -> Any:
        """Turn logits from 0 on into weights, in place."""
        weights = np.log1p(logits, out=logits)
        return np.log1p(weights, out=weights) if self._settings.activation == "log1p_relu" else weights

    def _entries(self, weights: Any) -> tuple[Any, Any, Any]:
        """Find the entries of `[texts, vocabulary]` that are not zero, row by row."""
        rows, indices = weights.nonzero()
        return np.bincount(rows, minlength=len(weights)), indices.astype(np.int32), weights[rows, indices]
