"""Pads the texts of a model of images and texts to one array."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sie_text.tokenizer import Ids, TextTokenizer


@dataclass(frozen=True, slots=True)
class Padding:
    """The padding of a batch's rows to one array."""

    token: int
    length: int | None
    """The fixed length of every row, if the model was trained with one; else the longest row's."""
    at_start: bool
    masked: bool
    """Whether the model gets a mask of the padding tokens."""

    def fill(self, rows: Sequence[Ids]) -> tuple[Ids, Ids]:
        """Return ids and mask, int64 `[rows, length]` both."""
        length = self.length or max(len(row) for row in rows)
        ids: NDArray[np.int64] = np.full((len(rows), length), self.token, dtype=np.int64)
        mask: NDArray[np.int64] = np.zeros_like(ids)
        for place, row in enumerate(rows):
            used = slice(length - len(row), length) if self.at_start else slice(len(row))
            ids[place, used], mask[place, used] = row, 1
        return ids, mask


def padding(tokenizer: TextTokenizer, kind: str, most: int) -> Padding:
    """Choose the padding of rows, for a model of `kind` with `most` positions.

    SigLIP reads a text's vector at its last position, whatever is there, and was trained with padding there:
    transformers documents `padding="max_length"`.
    """
    siglip = kind == "siglip"
    length = min(most, tokenizer.max_length or most) if siglip else None
    return Padding(tokenizer.pad or 0, length, siglip and tokenizer.pads_start, tokenizer.takes_mask)
