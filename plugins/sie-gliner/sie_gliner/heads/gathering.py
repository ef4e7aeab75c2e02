"""Picks the states of words and of labels out of those of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from sie_text.tokenizer import Ids

from sie_gliner.checkpoint.config import Pooling
from sie_gliner.text.rows import Row


@dataclass(frozen=True, slots=True)
class Slots:
    """The destinations of states in a table of rows."""

    states: Ids
    """The numbers of the states."""
    slots: Ids
    """Destination of each state: the row times `most`, plus the place in the row."""
    counts: tuple[int, ...]
    """Filled places of each row."""

    @property
    def most(self) -> int:
        """Places of a row."""
        return max(self.counts)


def word_slots(rows: Sequence[Row], firsts: Sequence[int]) -> Slots:
    """Find the tokens that stand for the words of rows, whose tokens begin at `firsts`."""
    counts = tuple(row.words for row in rows)
    tokens = [np.flatnonzero(row.places) for row in rows]
    slots = [
        number * max(counts) + row.places[kept] - 1 for number, (row, kept) in enumerate(zip(rows, tokens, strict=True))
    ]
    states = [kept + first for kept, first in zip(tokens, firsts, strict=True)]
    return Slots(np.concatenate(states), np.concatenate(slots), counts)


def listed_slots(listed: Sequence[Ids]) -> Slots:
    """Put the states that each row lists one after another."""
    counts = tuple(len(each) for each in listed)
    most = max(counts)
    slots = [number * most + np.arange(count) for number, count in enumerate(counts)]
    return Slots(np.concatenate(listed), np.concatenate(slots), counts)


@dataclass(frozen=True, slots=True)
class Table:
    """States laid out in rows, 0 if a row has fewer."""

    states: torch.Tensor
    """`[rows, most, size]`."""
    counts: torch.Tensor
    """Number of states per row, int64 `[rows]` on the CPU."""
    are_there: torch.Tensor
    """The same as bool `[rows, most]` on the device."""
    lengths: torch.Tensor
    """`counts` on the device."""

    def products(self, vectors: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Multiply vectors `[vectors, size]` with the states of their `rows`, which ascend: `[vectors, most]`."""
        parts = torch.split(vectors, torch.bincount(rows, minlength=len(self.states)).tolist())
        return torch.cat([part @ own.T for part, own in zip(parts, self.states, strict=True)])

    @classmethod
    def of(cls, states: torch.Tensor, slots: Slots, places: torch.Tensor, pooling: Pooling = "first") -> Table:
        """Lay states out.

        Args:
            states: `[states, size]`, those listed by `slots`.
            slots: Their destinations.
            places: `slots.slots` on the device.
            pooling: What becomes of several states of one place: their mean, or the largest of each number.
        """
        table = states.new_zeros(len(slots.counts) * slots.most, states.shape[1])
        if pooling in {"mean", "max"}:
            index = places[:, None].expand_as(states)
            reduce = "mean" if pooling == "mean" else "amax"
            table.scatter_reduce_(0, index, states, reduce, include_self=False)
        else:
            table[places] = states
        counts = torch.tensor(slots.counts)
        lengths = counts.to(states.device, non_blocking=True)
        are_there = torch.arange(slots.most, device=states.device) < lengths[:, None]
        return cls(table.view(len(slots.counts), slots.most, states.shape[1]), counts, are_there, lengths)
