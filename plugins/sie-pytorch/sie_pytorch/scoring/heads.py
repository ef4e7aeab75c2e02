"""Where the logits of a pair come from, by the layout of the model's files. It knows no request."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import torch

from sie_pytorch.heads.steps import Steps
from sie_pytorch.pooling import Spans, pool
from sie_pytorch.recipe import PoolingSettings
from sie_pytorch.scoring.layout import ScoreLayout
from sie_pytorch.scoring.own_heads import load_classifier, load_vocabulary_rows


class PairHead(Protocol):
    """From flat states to logits."""

    @property
    def labels(self) -> int:
        """How many logits a pair gets."""
        ...

    @property
    def padding(self) -> int | None:
        """The token that it passes over at the end of a sequence, where there is one."""
        ...

    @property
    def memory_bytes(self) -> int:
        """What its weights take on the device."""
        ...

    def __call__(self, states: torch.Tensor, spans: Spans) -> torch.Tensor:
        """Turn flat states `[total_tokens, hidden]` into float32 logits `[sequences, labels]`."""
        ...


def load_head(layout: ScoreLayout, folder: Path, hidden_size: int, device: torch.device) -> PairHead:
    """Load the head of a layout onto `device`.

    Raises:
        ModelLoadError: Weights of the head are missing or do not fit.
        NotUnderstoodError: The class of the checkpoint does something that no head does.
    """
    if layout.source == "classifier":
        return load_classifier(folder).to(device)
    if layout.source == "vocabulary":
        return _OddsHead(load_vocabulary_rows(folder, layout.tokens).to(device))
    assert layout.pooling is not None
    return _ModulesHead(layout.pooling, Steps(layout.steps, len(layout.pooling.modes) * hidden_size, device))


class _OddsHead:
    """The logit of a match, less that of no match: the log-odds between the two tokens."""

    labels = 1
    padding = None

    def __init__(self, rows: PairHead) -> None:
        self._rows = rows
        self.memory_bytes = rows.memory_bytes

    def __call__(self, states: torch.Tensor, spans: Spans) -> torch.Tensor:
        logits = self._rows(states, spans)
        return logits[:, :1] - logits[:, 1:2] if logits.shape[1] == 2 else logits


class _ModulesHead:
    """A pooling and the layers after it, of which the last gives the logits."""

    padding = None

    def __init__(self, pooling: PoolingSettings, steps: Steps) -> None:
        self._modes = pooling.modes
        self._steps = steps
        self.labels = steps.dims
        self.memory_bytes = steps.memory_bytes

    def __call__(self, states: torch.Tensor, spans: Spans) -> torch.Tensor:
        return self._steps(pool(states, spans, self._modes))
