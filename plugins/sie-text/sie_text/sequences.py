"""Sequences of token ids, and packed batches of them: the result of preparing prompts, texts and pairs."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from sie_core.contracts import Truncation, Unit
from sie_text.tokenizer import Ids

__all__ = ["PackedBatch", "TokenSequence"]


@dataclass(frozen=True, slots=True)
class TokenSequence:
    """One sequence of a forward pass."""

    ids: Ids
    """int64 `[tokens]`, special tokens included."""
    types: Ids | None = None
    """int64 `[tokens]`: the token types of a pair; None if all are 0."""
    excluded: int = 0
    """Number of leading tokens that pooling leaves out."""
    _: KW_ONLY
    truncated: Truncation | None = None
    max_active_dims: int | None = None
    """Entries that a sparse vector keeps; None for the weights' own number."""
    query: bool = False
    """Whether it is a query."""
    expanded: int = 0
    """Number of expansion tokens at its end."""
    attended: bool = True
    """Whether other tokens attend to the expansion."""
    finish_options: Any = None
    """Read by `Head.finish`; not part of the batch key."""

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return self.ids.nbytes + (0 if self.types is None else self.types.nbytes)

    def unit(self, item: int, key: Hashable) -> Unit:
        """Make the unit with this payload: its cost is its tokens; expansion tokens do not count as usage."""
        tokens = len(self.ids)
        return Unit(
            item,
            max(1, tokens),
            key,
            payload=self,
            tokens=tokens - self.expanded,
            truncated=self.truncated,
            nbytes=self.nbytes,
        )


class PackedBatch:
    """Sequences of one batch, one after another, without padding."""

    def __init__(self, sequences: Sequence[TokenSequence]) -> None:
        self.sequences = sequences
        ids = [sequence.ids for sequence in sequences]
        self.lengths: Ids = np.array([len(each) for each in ids], dtype=np.int64)
        """`[sequences]`: tokens of each sequence."""
        self.cu_seqlens: Ids = np.zeros(len(ids) + 1, dtype=np.int64)
        """`[sequences + 1]`: start of each sequence, and the number of all tokens last."""
        self.lengths.cumsum(out=self.cu_seqlens[1:])
        self.ids: Ids = np.concatenate(ids)
        """`[total_tokens]`: the ids of all sequences."""
        self.positions: Ids = np.arange(len(self.ids)) - self.cu_seqlens[:-1].repeat(self.lengths)
        """`[total_tokens]`: the place of each token in its sequence, from 0."""

    @cached_property
    def types(self) -> Ids:
        """`[total_tokens]`: the token types of all sequences."""
        types = [np.zeros_like(each.ids) if each.types is None else each.types for each in self.sequences]
        return np.concatenate(types)

    @cached_property
    def excluded(self) -> Ids:
        """`[sequences]`: number of leading tokens that pooling leaves out."""
        return np.array([sequence.excluded for sequence in self.sequences], dtype=np.int64)

    @cached_property
    def key_lengths(self) -> Ids | None:
        """`[sequences]`: number of key tokens of each sequence; None if all are."""
        unseen = [0 if sequence.attended else sequence.expanded for sequence in self.sequences]
        return self.lengths - np.array(unseen, dtype=np.int64) if any(unseen) else None
