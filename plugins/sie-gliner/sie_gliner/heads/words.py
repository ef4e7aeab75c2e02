"""Scores words as the start, the end and the inside of a label's span, and finds the resulting spans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from sie_gliner.heads.layers import linear_of

BEGIN, END, INSIDE = range(3)


class WordScorer(nn.Module):
    """An MLP over projections of the word and of the label, and the product of two further projections.

    After `fold` its first layer is taken apart: the part of the word is computed once for all labels.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.proj_token = nn.Linear(size, 2 * size)
        self.proj_label = nn.Linear(size, 2 * size)
        # Dropout stands before the activation, in training.
        layers = nn.Linear(3 * size, 4 * size), nn.Identity(), nn.ReLU(), nn.Linear(4 * size, 3)
        self.out_mlp: Any = nn.Sequential(*layers)

    def fold(self) -> None:
        """Take the MLP apart."""
        joined, last = self.out_mlp[0], self.out_mlp[3]
        of_word, of_label, of_both = joined.weight.chunk(3, dim=1)
        self.of_word = linear_of(of_word, joined.bias)
        self.of_label, self.of_both = linear_of(of_label), linear_of(of_both)
        self.last = last
        self.out_mlp = None

    def forward(self, words: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Score `[rows, words, size]` for `[rows, labels, size]`: logits `[rows, words, labels, 3]`."""
        alone, factor = self.proj_token(words).chunk(2, dim=-1)
        label_alone, label_factor = self.proj_label(labels).chunk(2, dim=-1)
        from_words, from_labels = self.of_word(alone), self.of_label(label_alone)
        found = []
        for label in range(labels.shape[1]):
            inner = self.of_both(factor * label_factor[:, label : label + 1])
            inner = inner.add_(from_words).add_(from_labels[:, label : label + 1])
            found.append(self.last(F.relu(inner, inplace=True)))
        return torch.stack(found, dim=2)


def found_spans(
    probabilities: torch.Tensor, words: Sequence[int], labels: Sequence[int], thresholds: Sequence[float]
) -> torch.Tensor:
    """List the spans whose first word begins, whose last word ends, and whose every word is inside an entity of a
    label.

    A span is listed once per label.

    Args:
        probabilities: `[rows, most words, most labels, 3]`.
        words: Words of each row.
        labels: Labels of each row.
        thresholds: Each row's lower bound on probabilities.

    Returns:
        int64 `[spans, 3]`: the row, the first and the last word; ordered by row, first word and label.
    """
    rows = enumerate(zip(probabilities, words, labels, thresholds, strict=True))
    return torch.cat(
        [
            F.pad(_spans_of(row[:length, :kinds] > threshold), (1, 0), value=number)
            for number, (row, length, kinds, threshold) in rows
        ]
    )


def _spans_of(above: torch.Tensor) -> torch.Tensor:
    """List the spans of one row; `above` `[words, labels, 3]` marks the entries above the threshold."""
    firsts, labels = above[..., BEGIN].nonzero(as_tuple=True)
    inside = F.pad(above[..., INSIDE].cumsum(0), (0, 0, 1, 0)).T[labels]
    places = torch.arange(len(above), device=above.device)
    length = places - firsts[:, None] + 1
    count = inside[:, 1:] - inside.gather(1, firsts[:, None])
    start, lasts = ((length > 0) & (count == length) & above[..., END].T[labels]).nonzero(as_tuple=True)
    return torch.stack((firsts[start], lasts), dim=1)
