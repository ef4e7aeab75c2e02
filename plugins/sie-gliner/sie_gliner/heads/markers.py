"""Scores spans by their two ends, without a representation of each span.

A span is represented by an MLP over the concatenated projections of its first and its last word. The MLP's first layer
is a sum of two products, one for each end, so each word is multiplied once for all its spans. The last layer is folded
into the labels, which are few.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from sie_gliner.heads.layers import linear_of, mlp

CONTEXTS = ("markerV1", "markerV2")
"""Modes that take something of the whole text in: the mean of its words, or the last."""


class EndMarkers(nn.Module):
    """The span modes `marker` and `markerV0` to `markerV2`, and what represents the spans of models that score words.

    After `fold` it holds the weights in the form of its products.
    """

    def __init__(self, mode: str, size: int, width: int) -> None:
        super().__init__()
        self._mode, self._size, self._width = mode, size, width
        if mode == "marker":
            self.project_start, self.project_end = (
                nn.Sequential(nn.Linear(size, 2 * size), nn.ReLU(), nn.Identity(), nn.Linear(2 * size, size))
                for _ in range(2)
            )
            self.out_project: nn.Module | None = nn.Linear(2 * size, size)
        else:
            self.project_start, self.project_end = mlp(size, size), mlp(size, size)
            self.out_project = mlp((3 if mode in CONTEXTS else 2) * size, size)
        if mode == "markerV1":
            self.project_first = mlp(size, size)  # in the files; the mean that it is named after is not projected
        if mode == "markerV2":
            self.project_context = mlp(size, size)

    def fold(self) -> None:
        """Take the layers after the projections apart, one part an end."""
        out = self.out_project
        assert out is not None
        joined, last = (out, None) if isinstance(out, nn.Linear) else (out[0], out[3])  # type: ignore[index]
        of_start, of_end, *of_context = joined.weight.split(self._size, dim=1)
        self.of_start, self.of_end = linear_of(of_start, joined.bias), linear_of(of_end)
        self.of_context = linear_of(of_context[0]) if of_context else None
        self.last = None if last is None else nn.ParameterList([last.weight, last.bias]).requires_grad_(False)
        self.out_project = None
        if self._mode == "markerV1":
            del self.project_first

    def logits(self, words: torch.Tensor, lengths: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Score every span that begins in a word and has up to `width` words.

        Args:
            words: `[rows, words, size]`.
            lengths: Number of words of each row, `[rows]`.
            labels: `[rows, labels, size]`.

        Returns:
            `[rows, words, width, labels]`; what reaches beyond the text means nothing.
        """
        starts, ends = self._ends(words, lengths)
        if self.last is None:
            weight, bias = labels.transpose(1, 2), 0
            starts, ends = starts @ weight, ends @ weight
            shifted = self._shifted(ends)
            return torch.stack([starts + each for each in shifted], dim=2)
        weight, bias = (labels @ self.last[0]).transpose(1, 2), (labels @ self.last[1])[:, None]
        joined = ((starts + each).relu_() for each in self._shifted(ends))
        return torch.stack([torch.baddbmm(bias, each, weight) for each in joined], dim=2)

    def vectors(
        self, words: torch.Tensor, lengths: torch.Tensor, rows: torch.Tensor, firsts: torch.Tensor, lasts: torch.Tensor
    ) -> torch.Tensor:
        """Represent some spans, by their row, their first and their last word: `[spans, size]`."""
        starts, ends = self._ends(words, lengths)
        joined = starts[rows, firsts] + ends[rows, lasts]
        return joined if self.last is None else F.linear(joined.relu_(), self.last[0], self.last[1])

    def _ends(self, words: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return a word's contributions as the first word of a span, and as the last."""
        starts = self.of_start(self.project_start(words).relu_())
        ends = self.of_end(self.project_end(words).relu_())
        if self.of_context is not None:
            starts = starts + self.of_context(self._context(words, lengths).relu_())[:, None]
        return starts, ends

    def _context(self, words: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Return each text's contribution to all its spans. Words that are not there are 0."""
        if self._mode == "markerV1":
            return words.sum(dim=1) / lengths[:, None].to(words.dtype)
        context: torch.Tensor = self.project_context(words[torch.arange(len(words), device=words.device), lengths - 1])
        return context

    def _shifted(self, ends: torch.Tensor) -> list[torch.Tensor]:
        """Return the end contributions for spans of one word, of two, and so on, at their first words."""
        length = ends.shape[1]
        padded = F.pad(ends, (0, 0, 0, self._width - 1))
        return [padded[:, width : width + length] for width in range(self._width)]
