"""The labels of tokens, by the logits of a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sie_text.labels import softmax


@dataclass(frozen=True, slots=True, eq=False)
class Marks:
    """The likeliest label of each token, with its probability; NaN where a logit is none or infinite."""

    labels: NDArray[np.int32]
    """`[tokens]`."""
    scores: NDArray[np.float32]
    """`[tokens]`."""
    probabilities: NDArray[np.float32] | None = None
    """`[tokens, labels]`; kept only where the labels of a word are averaged: it is the bulk of an answer."""


def mark(logits: NDArray[np.float32], strategy: str) -> Marks:
    """Label tokens by their logits `[tokens, labels]`."""
    with np.errstate(invalid="ignore"):  # of infinite logits, which come out as NaN
        shares = softmax(logits).astype(np.float32) if len(logits) else logits
    labels = shares.argmax(axis=1).astype(np.int32)
    return Marks(labels, shares.max(axis=1), shares if strategy == "average" else None)


def joined_marks(parts: Sequence[Marks]) -> Marks:
    """Put the marks of a text's windows together, in the text's order."""
    probabilities = [part.probabilities for part in parts if part.probabilities is not None]
    return Marks(
        np.concatenate([part.labels for part in parts]),
        np.concatenate([part.scores for part in parts]),
        np.concatenate(probabilities) if probabilities else None,
    )
