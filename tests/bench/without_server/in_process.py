"""The speed of a library without a server, whichever it is: many texts at once, then one after another.

It runs in the library's own environment, so it stands on NumPy alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

BATCH = 32
"""Texts a batch: sentence-transformers' and infinity's default."""
ALONE = 50
"""Texts that are encoded one by one."""

Encode = Callable[[list[str]], Any]
"""Texts to normalised float32 vectors `[texts, dims]`, in batches of `BATCH` sorted by length."""


def speeds(encode: Encode, job: dict[str, Any]) -> dict[str, Any]:
    """Measure every kind of the job: texts a second, milliseconds of one text, and how right the vectors are."""
    answer = {}
    for kind, asked in job["kinds"].items():
        texts, expected = asked["texts"], np.load(asked["reference"])[: len(asked["texts"])]
        encode(texts[:BATCH])
        started = time.perf_counter()
        vectors = np.asarray(encode(texts))
        seconds = time.perf_counter() - started
        difference = float(np.abs(vectors - expected).max())
        answer[kind] = {
            "texts_s": len(texts) / seconds,
            "p50": float(np.percentile(_alone(encode, texts[:ALONE]), 50)),
            "least_cosine": float((vectors * expected).sum(axis=1).min()),
            "largest_difference": difference,
        }
    return answer


def _alone(encode: Encode, texts: Sequence[str]) -> list[float]:
    """Encode texts one by one; return milliseconds."""
    taken = []
    for text in texts:
        started = time.perf_counter()
        encode([text])
        taken.append((time.perf_counter() - started) * 1000)
    return taken


def padding_waste(texts: Sequence[str], tokens: Sequence[int], batch: int = BATCH) -> float:
    """Return which share of the positions computed is padding when batches are cut from texts sorted by characters."""
    order = sorted(range(len(texts)), key=lambda place: -len(texts[place]))
    counts = [[tokens[place] for place in order[start : start + batch]] for start in range(0, len(order), batch)]
    computed = sum(max(each) * len(each) for each in counts)
    return 1 - sum(tokens) / computed
