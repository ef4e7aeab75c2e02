"""A weight for every token of a text, by a linear layer on its state (BGE-M3, arXiv 2402.03216).

Of a token that repeats the largest weight counts; the tokens that frame a text, or stand for none, have no weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sie_core.contracts import ItemOutput, ModelLoadError, OutputType, Task
from sie_pytorch.heads.protocol import PackedRows
from sie_pytorch.heads.sparse import sparse_outputs
from sie_pytorch.heads.steps import load_projection
from sie_pytorch.pooling import Upload
from sie_pytorch.preparation import TokenRow
from sie_pytorch.recipes.settings import TokenWeightSettings


class TokenWeightHead:
    """Weighs tokens on the device and gathers them on the host."""

    output: OutputType = "sparse"

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
            settings: What the files say.
            hidden_size: Of the states.
            vocabulary: How many tokens there are.
            weightless: Ids of tokens without a weight.
            device: Where the states are.

        Raises:
            ModelLoadError: `CORRUPT`: the layer is missing, or is none from states to one number.
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

    def choose(self, task: Task) -> None:
        """Nothing of it changes by request: `max_active_dims` is of single texts."""

    def lay_out(self, batch: PackedRows, upload: Upload) -> PackedRows:
        """Keep the rows for the host; the device needs nothing of them."""
        return batch

    def compute(self, states: torch.Tensor, layout: PackedRows, choice: None) -> tuple[torch.Tensor]:
        """Turn flat states `[total_tokens, hidden]` into float32 weights `[total_tokens]`."""
        return (self._layer(states.float())[:, 0].relu(),)

    def finish(
        self, rows: Sequence[TokenRow], layout: PackedRows, arrays: Sequence[NDArray[Any]], choice: None
    ) -> list[ItemOutput]:
        """Gather each text's weights by token."""
        (weights,) = arrays
        ids, texts = layout.ids, np.repeat(np.arange(len(rows)), layout.lengths)
        # What is no number is kept, so that the check of all outputs finds it.
        kept = ~(weights <= 0) & ~np.isin(ids, self._weightless)
        places = texts[kept] * self.dims + ids[kept]
        order = np.argsort(places, kind="stable")
        distinct, firsts = np.unique(places[order], return_index=True)
        values = np.maximum.reduceat(weights[kept][order], firsts) if len(firsts) else weights[:0]
        counts = np.bincount(distinct // self.dims, minlength=len(rows))
        entries = (counts, (distinct % self.dims).astype(np.int32), values)
        return sparse_outputs(entries, [row.max_active_dims for row in rows], self.dims)
