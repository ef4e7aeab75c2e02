"""Represents every span of a text by a vector: the span modes of GLiNER that do not go by a span's two ends.

Missing words must be 0, like positions beyond a text.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

QUERY = 128
"""Numbers that stand for each width in the mode `cat`."""


class SpanVectors(nn.Module):
    """Scores spans by a vector each, which a mode makes of the words."""

    def logits(self, words: torch.Tensor, lengths: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Score every span; see `EndMarkers.logits`."""
        return torch.einsum("rwsd,rld->rwsl", self(words), labels)

    def vectors(
        self, words: torch.Tensor, lengths: torch.Tensor, rows: torch.Tensor, firsts: torch.Tensor, lasts: torch.Tensor
    ) -> torch.Tensor:
        """Represent some spans; see `EndMarkers.vectors`."""
        found: torch.Tensor = self(words)[rows, firsts, lasts - firsts]
        return found


class QueryVectors(SpanVectors):
    """The first word, weighed by a query for each width."""

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.query_seg = nn.Parameter(torch.empty(size, width))
        self.project = nn.Sequential(nn.Linear(size, size), nn.ReLU())

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Compute `[rows, words, width, size]`."""
        found: torch.Tensor = self.project(words[:, :, None] * self.query_seg.T)
        return found


class MlpVectors(SpanVectors):
    """A part of one layer for each width."""

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.mlp = nn.Linear(size, size * width)
        self._width = width

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Compute `[rows, words, width, size]`."""
        found: torch.Tensor = self.mlp(words)
        return found.view(*words.shape[:2], self._width, words.shape[2]).relu_()


class CatVectors(SpanVectors):
    """Concatenates the first word with a learned embedding per width."""

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.query_seg = nn.Parameter(torch.empty(QUERY, width))
        self.project = nn.Sequential(nn.Linear(size + QUERY, size), nn.ReLU())
        self._width = width

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Compute `[rows, words, width, size]`."""
        shape = (*words.shape[:2], self._width, -1)
        # gliner views the parameter in the order of its numbers; that is not its transpose.
        numbers = self.query_seg.view(self._width, QUERY).expand(shape)
        found: torch.Tensor = self.project(torch.cat((words[:, :, None].expand(shape), numbers), dim=-1))
        return found


class ConvVectors(SpanVectors):
    """The words of a span, convolved or pooled."""

    def __init__(self, mode: str, size: int, width: int) -> None:
        super().__init__()
        self._mode, self._width = mode, width
        self.convs = nn.ModuleList(
            nn.ModuleDict({"conv": nn.Conv1d(size, size, kernel)} if mode == "conv_conv" else {})
            for kernel in range(2, width + 1)
        )
        self.project = nn.Sequential(nn.ReLU(), nn.Linear(size, size))

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Compute `[rows, words, width, size]`."""
        columns = words.transpose(1, 2)
        found = [self._of_width(columns, kernel) for kernel in range(1, self._width + 1)]
        vectors: torch.Tensor = self.project(torch.stack(found, dim=1).permute(0, 3, 1, 2))
        return vectors

    def _of_width(self, columns: torch.Tensor, kernel: int) -> torch.Tensor:
        """Represent the spans of `kernel` words, `[rows, size, words]`; there is nothing beyond the text."""
        if kernel == 1:
            return columns
        padded = F.pad(columns, (0, kernel - 1))
        if self._mode == "conv_conv":
            convolved: torch.Tensor = self.convs[kernel - 2]["conv"](padded)  # type: ignore[index]
            return convolved
        if self._mode == "conv_max":
            return F.max_pool1d(padded, kernel, stride=1)
        mean = F.avg_pool1d(padded, kernel, stride=1)
        return mean * kernel if self._mode == "conv_sum" else mean


class SharedConvVectors(SpanVectors):
    """The words of a span, convolved with the first columns of one weight."""

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.conv_weigth = nn.Parameter(torch.empty(size, size, width))  # spelled so in the files
        self.project = nn.Sequential(nn.ReLU(), nn.Linear(size, size))

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Compute `[rows, words, width, size]`."""
        columns, weight = words.transpose(1, 2), self.conv_weigth
        widths = range(1, weight.shape[2] + 1)
        found = [F.conv1d(F.pad(columns, (0, width - 1)), weight[:, :, :width]) for width in widths]
        vectors: torch.Tensor = self.project(torch.stack(found, dim=1).permute(0, 3, 1, 2))
        return vectors
