"""What a head is: the part of a model after its transformer, for one kind of output. It knows no architecture."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from sie_core.contracts import ItemOutput, OutputType, Task
from sie_pytorch.pooling import Index, Upload
from sie_pytorch.preparation import TokenRow


@dataclass(frozen=True, slots=True)
class PackedRows:
    """The rows of one batch, one after another."""

    rows: Sequence[TokenRow]
    cu_seqlens: Index
    """`[sequences + 1]`: where each starts, the number of all tokens last."""

    @classmethod
    def of(cls, rows: Sequence[TokenRow]) -> PackedRows:
        """Lay them out."""
        lengths = np.array([len(row.ids) for row in rows], dtype=np.int64)
        return cls(rows, np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(lengths))))

    @property
    def ids(self) -> Index:
        """`[total_tokens]`: the ids of all rows."""
        ids: Index = np.concatenate([row.ids for row in self.rows])
        return ids

    @property
    def lengths(self) -> Index:
        """`[sequences]`: how many tokens each has."""
        lengths: Index = np.diff(self.cu_seqlens)
        return lengths

    @property
    def key_lengths(self) -> Index | None:
        """`[sequences]`: how many tokens of each are attended to; None where all are."""
        unseen = [0 if row.attended else row.filled for row in self.rows]
        return self.lengths - np.array(unseen, dtype=np.int64) if any(unseen) else None

    @property
    def positions(self) -> Index:
        """`[total_tokens]`: the place of each token in its row, from 0."""
        positions: Index = np.arange(self.cu_seqlens[-1]) - np.repeat(self.cu_seqlens[:-1], self.lengths)
        return positions


class Head(Protocol):
    """Makes one kind of output. `lay_out` and `compute` run on the device's thread, the others on CPU threads."""

    output: OutputType
    dims: int
    """Dimensions of a vector; of a sparse one, the entries of its vocabulary."""
    memory_bytes: int
    """What its weights take on the device."""

    def choose(self, task: Task) -> Hashable:
        """Read what a request may change of it: its part of the inference key.

        Raises:
            InvalidInput: An option does not suit it.
        """
        ...

    def lay_out(self, batch: PackedRows, upload: Upload) -> Any:
        """Bring to the device what `compute` needs of a batch, before the states are computed."""
        ...

    def compute(self, states: torch.Tensor, layout: Any, choice: Any) -> Sequence[torch.Tensor]:
        """Turn flat states `[total_tokens, hidden]` into tensors on their device."""
        ...

    def finish(
        self, rows: Sequence[TokenRow], layout: Any, arrays: Sequence[NDArray[Any]], choice: Any
    ) -> Sequence[ItemOutput]:
        """Hand each row its part of the tensors, which have reached the host."""
        ...
