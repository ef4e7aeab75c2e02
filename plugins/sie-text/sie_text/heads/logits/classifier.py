"""Computes the logits of a sequence, for the heads that derive classes or scores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from sie_text.heads.pooling import pool
from sie_text.heads.spans import Spans, Upload, find_spans, last_others
from sie_text.heads.vectors.steps import Steps
from sie_text.recipe import PoolingSettings
from sie_text.sequences import PackedBatch


class Classifier(ABC):
    """Maps the states of a batch to logits, one row per sequence."""

    labels: int
    """Number of logits per sequence."""
    memory_bytes: int
    """Bytes of its weights, where it computes."""
    padding: int | None = None
    """The padding token that it skips at the end of a sequence, if there is one; see `last_others`."""

    @abstractmethod
    def __call__(self, states: Any, spans: Spans) -> Any:
        """Turn flat states `[total_tokens, hidden]` into float32 logits `[sequences, labels]`."""

    def lay_out(self, batch: PackedBatch, upload: Upload) -> Spans:
        """Find the states of each sequence that it reads: all of its tokens, a prompt's too."""
        lasts = None if self.padding is None else last_others(batch.ids, batch.cu_seqlens, self.padding)
        return find_spans(batch.cu_seqlens, np.zeros_like(batch.lengths), upload, lasts)


class PooledClassifier(Classifier):
    """A pooling and the layers after it; the last one gives the logits."""

    def __init__(self, pooling: PoolingSettings, steps: Steps, padding: int | None = None) -> None:
        self._modes = pooling.modes
        self._steps = steps
        self.labels = steps.dims
        self.memory_bytes = steps.memory_bytes
        self.padding = padding

    def __call__(self, states: Any, spans: Spans) -> Any:
        """Pool, then apply the layers in their order."""
        return self._steps(pool(states, spans, self._modes))


class Odds(Classifier):
    """The logit of a match minus that of no match: the log-odds between two tokens."""

    labels = 1

    def __init__(self, rows: Classifier) -> None:
        """Take the logits of the tokens: of the match, and perhaps of no match."""
        self._rows = rows
        self.memory_bytes = rows.memory_bytes

    def __call__(self, states: Any, spans: Spans) -> Any:
        """Subtract."""
        logits = self._rows(states, spans)
        return logits[:, :1] - logits[:, 1:2] if logits.shape[1] == 2 else logits
