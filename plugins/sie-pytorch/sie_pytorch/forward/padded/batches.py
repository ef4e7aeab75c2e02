"""Converts packed sequences to padded batches of similar length, and back: for runners whose library takes padded
input.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch

from sie_pytorch.forward.transfers import Transfers

PADDING_SHARE = 1 / 8
"""Share of a padded batch that may be padding."""
PADDING_TOKENS = 128
"""Padding tokens that are always allowed: they cost about as much as a separate pass."""


@dataclass(frozen=True, slots=True)
class PaddedBatch:
    """Some sequences of a packed batch, padded on the right to the longest of them."""

    rows: torch.Tensor
    """int64 `[sequences, longest]` on the device: which token of the packed batch stands there, -1 for padding."""

    @property
    def real(self) -> torch.Tensor:
        """Whether a token stands there: bool `[sequences, longest]`."""
        return self.rows >= 0

    def pad(self, flat: torch.Tensor, padding: int | bool) -> torch.Tensor:
        """Scatter `[total_tokens]` values into this shape, with `padding` at the other positions."""
        return flat[self.rows.clamp(min=0)].masked_fill(~self.real, padding)


@dataclass(frozen=True, slots=True)
class PaddedBatches:
    """All sequences of a packed batch in padded ones."""

    batches: tuple[PaddedBatch, ...]
    _places: torch.Tensor
    """int64 `[total_tokens]` on the device: position of each token in the concatenated padded batches."""

    @classmethod
    def of(cls, cu_seqlens: torch.Tensor, transfers: Transfers, *, exact: bool = False) -> PaddedBatches:
        """Group sequences by length; all indices go to the device in one copy, without a wait.

        Args:
            cu_seqlens: `[sequences + 1]` on the CPU, as `Runner.forward` takes it.
            transfers: Transfers of the device.
            exact: Batch only sequences of equal length, which takes no padding.
        """
        bounds = cu_seqlens.tolist()
        lengths = [stop - start for start, stop in pairwise(bounds)]
        padded = []
        for group in group_by_length(lengths, exact=exact):
            starts, own = (np.array([source[n] for n in group])[:, None] for source in (bounds, lengths))
            places = np.arange(own.max())
            padded.append(np.where(places < own, starts + places, -1))
        flat = np.concatenate([rows.ravel() for rows in padded])
        real = np.flatnonzero(flat >= 0)
        places = np.empty(bounds[-1], np.int64)
        places[flat[real]] = real
        *there, on_device = transfers.upload([*(rows.ravel() for rows in padded), places])
        batches = (PaddedBatch(part.view(rows.shape)) for part, rows in zip(there, padded, strict=True))
        return cls(tuple(batches), on_device)

    def flatten(self, states: Sequence[torch.Tensor]) -> torch.Tensor:
        """Bring the states of each batch, `[sequences, longest, hidden]`, into the packed order without padding."""
        return torch.cat([part.flatten(0, 1) for part in states])[self._places]


def group_by_length(lengths: Sequence[int], *, exact: bool = False, free: int = PADDING_TOKENS) -> list[list[int]]:
    """Put sequences into padded batches of similar length, longest first.

    A batch takes the next shorter sequence while its padding stays within an eighth of it, or within the cost of a
    separate pass.

    Args:
        lengths: Tokens of each sequence.
        exact: Allow no padding at all.
        free: Padding tokens that are always allowed.

    Returns:
        The indices of the sequences in each batch.
    """
    batches: list[list[int]] = []
    longest = real = 0
    for number in sorted(range(len(lengths)), key=lambda n: -lengths[n]):
        length = lengths[number]
        padded = longest * (len(batches[-1]) + 1) if batches else 0
        padding = padded - real - length
        fits = padding <= (0 if exact else max(padded * PADDING_SHARE, free))
        if batches and fits:
            batches[-1].append(number)
            real += length
        else:
            batches.append([number])
            longest = real = length
    return batches
