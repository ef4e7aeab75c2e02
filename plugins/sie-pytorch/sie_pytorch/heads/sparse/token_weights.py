"""A weight for every token of a text, by a linear layer on its state (BGE-M3, arXiv 2402.03216).

For a repeated token the largest weight counts; special tokens and unknown tokens have no weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sie_text.recipe import TokenWeightSettings
from sie_text.sequences import PackedBatch, TokenSequence
from sie_text.sparse import sparse_outputs

from sie_core.contracts import ItemOutput, ModelLoadError
from sie_pytorch.heads.pooling import Upload
from sie_pytorch.heads.protocol import Head, Output
from sie_pytorch.heads.vectors.steps import load_projection


class TokenWeightHead(Head):
    """Weighs tokens on the device and gathers them on the host."""

    output: Output = "sparse"

    def __init__(
        self,
        settings: TokenWeightSettings,
        hidden_size: int,
        vocabulary: int,
        weightless: Sequence[int],
        device: torch.device,
    ) -> None:
        """Load the layer onto `device`.

        Args:
            settings: The files' settings.
            hidden_size: Of the states.
            vocabulary: Number of tokens.
            weightless: Ids of tokens without a weight.
            device: Device of the states.

        Raises:
            ModelLoadError: `CORRUPT`: the layer is missing, or does not map states to one number.
        """
        self._layer = load_projection(settings.projection).to(device)
        if tuple(self._layer.weight.shape) != (1, hidden_size):
            raise ModelLoadError(
                "CORRUPT",
                f"{settings.projection.file.name} has weights of shape {tuple(self._layer.weight.shape)}, and the "
                f"model's states ask for (1, {hidden_size}).",
            )
        self._weightless = np.array(sorted(set(weightless)), dtype=np.int64)
        self.dims = vocabulary
        self.memory_bytes = sum(weight.nbytes for weight in self._layer.parameters())

    def lay_out(self, batch: PackedBatch, upload: Upload) -> PackedBatch:
        """Keep the batch for the host; the device needs nothing of it."""
        return batch

    def compute(self, states: torch.Tensor, layout: PackedBatch, choice: None) -> tuple[torch.Tensor]:
        """Turn flat states `[total_tokens, hidden]` into float32 weights `[total_tokens]`."""
        return (self._layer(states.float())[:, 0].relu(),)

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
