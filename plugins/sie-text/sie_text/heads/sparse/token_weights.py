"""A weight for every token of a text, by a linear layer on its state (BGE-M3, arXiv 2402.03216).

For a repeated token the largest weight counts; special tokens and unknown tokens have no weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sie_core.contracts import ItemOutput, ModelLoadError
from sie_text.heads.protocol import Head, HeadContext, Output
from sie_text.heads.spans import Upload
from sie_text.heads.vectors.layers import Step
from sie_text.recipe import TokenWeightSettings
from sie_text.sequences import PackedBatch, TokenSequence
from sie_text.sparse import sparse_outputs


class TokenWeightHead(Head):
    """Weighs tokens, and gathers the weights on the host."""

    output: Output = "sparse"

    def __init__(self, settings: TokenWeightSettings, layer: Step, context: HeadContext) -> None:
        """Keep the layer; the tokenizer of `context` says which tokens have no weight.

        Raises:
            ModelLoadError: `CORRUPT`: the layer does not map states to one number.
        """
        if (layer.gives, layer.takes) != (1, context.hidden_size):
            raise ModelLoadError(
                "CORRUPT",
                f"{settings.projection.file.name} has weights of shape {(layer.gives, layer.takes)}, and the "
                f"model's states ask for (1, {context.hidden_size}).",
            )
        tokenizer = context.tokenizer
        self._layer = layer
        self._weightless = np.array(sorted(tokenizer.unweighted), dtype=np.int64)
        self.dims = tokenizer.embedded or tokenizer.vocabulary
        self.memory_bytes = layer.memory_bytes

    def lay_out(self, batch: PackedBatch, upload: Upload) -> PackedBatch:
        """Keep the batch for the host; the layer needs nothing of it."""
        return batch

    def compute(self, states: Any, layout: PackedBatch, choice: None) -> Sequence[Any]:
        """Turn flat states `[total_tokens, hidden]` into float32 weights `[total_tokens]`."""
        return (np.maximum(self._layer(states.astype(np.float32, copy=False))[:, 0], 0),)

    def finish(
        self, sequences: Sequence[TokenSequence], layout: PackedBatch, arrays: Sequence[NDArray[Any]], choice: None
    ) -> list[ItemOutput]:
        """Gather each text's weights by token."""
        (weights,) = arrays
        ids, texts = layout.ids, np.repeat(np.arange(len(sequences)), layout.lengths)
        # NaN is kept, so that the check of all outputs finds it.
        kept = ~(weights <= 0) & ~np.isin(ids, self._weightless)
        places = texts[kept] * self.dims + ids[kept]
        order = np.argsort(places, kind="stable")
        distinct, firsts = np.unique(places[order], return_index=True)
        values = np.maximum.reduceat(weights[kept][order], firsts) if len(firsts) else weights[:0]
        counts = np.bincount(distinct // self.dims, minlength=len(sequences))
        entries = (counts, (distinct % self.dims).astype(np.int32), values)
        return sparse_outputs(entries, [sequence.max_active_dims for sequence in sequences], self.dims)
