"""Computes the logits of a sequence, for the heads that derive classes or scores."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import torch
from sie_text.recipe import PoolingSettings
from sie_text.sequences import PackedBatch

from sie_pytorch.heads.pooling import Spans, Upload, find_spans, last_others, pool
from sie_pytorch.heads.vectors.steps import Steps


class Classifier(ABC):
    """Maps the states of a batch to logits, one row per sequence."""

    labels: int
    """Number of logits per sequence."""
    memory_bytes: int
    """Bytes of its weights on the device."""
    padding: int | None = None
    """The padding token that it skips at the end of a sequence, if there is one; see `last_others`."""

    @abstractmethod
    def __call__(self, states: torch.Tensor, spans: Spans) -> torch.Tensor:
        """Turn flat states `[total_tokens, hidden]` into float32 logits `[sequences, labels]`."""

    def lay_out(self, batch: PackedBatch, upload: Upload) -> Spans:
        """Find the states of each sequence that it reads: all of its tokens, a prompt's too."""
        lasts = None if self.padding is None else last_others(batch.ids, batch.cu_seqlens, self.padding)
        return find_spans(batch.cu_seqlens, np.zeros_like(batch.lengths), upload, lasts)


class PooledClassifier(Classifier):
    """A pooling and the layers after it; the last one gives the logits."""

    def __init__(self, pooling: PoolingSettings, steps: Steps) -> None:
        self._modes = pooling.modes
        self._steps = steps
        self.labels = steps.dims
        self.memory_bytes = steps.memory_bytes

    def __call__(self, states: torch.Tensor, spans: Spans) -> torch.Tensor:
        """Pool, then apply the layers in their order."""
        return self._steps(pool(states, spans, self._modes))
