"""A vector for every token that counts (ColBERT, arXiv 2004.12832): projected, scaled, the skip list left out.

The rule for tokens that count is `MultiVectorMask` of sentence-transformers 6.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sie_core.contracts import ItemOutput, Task
from sie_text.heads.protocol import Head, HeadContext, Output
from sie_text.heads.spans import Upload
from sie_text.heads.vectors.steps import Steps
from sie_text.recipe import MultivectorSettings
from sie_text.sequences import PackedBatch, TokenSequence


@dataclass(frozen=True, slots=True)
class Kept:
    """The tokens of a batch that count."""

    rows: Any
    """int64 `[kept]`, where the states are: numbers of flat states."""
    stops: NDArray[np.int64]
    """`[sequences]`: cumulative number of kept tokens."""


class MultivectorHead(Head):
    """Gathers the states that count, then applies the layers."""

    output: Output = "multivector"

    def __init__(self, settings: MultivectorSettings, skipped: Sequence[int], steps: Steps) -> None:
        """Keep the parts.

        Args:
            settings: The files' settings.
            skipped: Ids of the tokens of the skip list.
            steps: The layers of `settings`.
        """
        self._settings = settings
        self._skipped = np.array(sorted(set(skipped)), dtype=np.int64)
        self._keep_only = np.array(sorted(settings.keep_only), dtype=np.int64)
        self._steps = steps
        self.dims = steps.dims
        self.memory_bytes = steps.memory_bytes

    def choose(self, task: Task) -> bool | None:
        """Read the option `normalize`."""
        normalize: bool | None = task.options.get("normalize")
        return normalize

    def lay_out(self, batch: PackedBatch, upload: Upload) -> Kept:
        """Find the tokens that count, on the host."""
        kept = self._kept(batch)
        stops = np.concatenate(([0], np.cumsum(kept)))[batch.cu_seqlens[1:]]
        (rows,) = upload([np.flatnonzero(kept)])
        return Kept(rows, stops)

    def compute(self, states: Any, layout: Kept, choice: bool | None) -> Sequence[Any]:
        """Turn flat states `[total_tokens, hidden]` into float32 vectors `[kept, dims]`."""
        return (self._steps(states[layout.rows].astype(np.float32, copy=False), choice),)

    def finish(
        self, sequences: Sequence[TokenSequence], layout: Kept, arrays: Sequence[NDArray[Any]], choice: bool | None
    ) -> list[ItemOutput]:
        """Give each text its vectors; all share an array that nothing else holds."""
        return [ItemOutput(multivector=part) for part in np.split(arrays[0], layout.stops[:-1])]

    def _kept(self, batch: PackedBatch) -> NDArray[np.bool_]:
        """Return the mask of the tokens that count."""
        ids, lengths, settings = batch.ids, batch.lengths, self._settings
        queries = np.array([sequence.query for sequence in batch.sequences])
        kept = np.ones(len(ids), dtype=bool)
        if len(self._skipped):
            skipping = np.where(queries, "query" in settings.skiplist_tasks, "document" in settings.skiplist_tasks)
            kept &= ~(np.repeat(skipping, lengths) & np.isin(ids, self._skipped))
        if len(self._keep_only):
            kept &= np.repeat(queries, lengths) | np.isin(ids, self._keep_only)
        if settings.skips_first:
            kept[batch.cu_seqlens[:-1]] = False
        return kept


def skipped_ids(settings: MultivectorSettings, context: HeadContext) -> list[int]:
    """Return the ids of the tokens of the skip list that the tokenizer knows."""
    known = map(context.tokenizer.core.token_to_id, settings.skiplist)
    return [number for number in known if number is not None]
