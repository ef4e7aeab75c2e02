"""The texts of the GPU bench, cut into batches of a number of tokens."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tests.bench.workload.texts import KINDS
from tests.bench.workload.words import sentences

LENGTHS = {"16": 16, "128": 128, "512": 512}
"""Tokens of every text, by the name of the kind; `mixed` has the lengths of `make bench`."""
MIXED = "mixed"
NAMES = (*LENGTHS, MIXED)
SPECIAL = 2
"""Words a text is short of its tokens; a model with one special token reads one token less."""


@dataclass(frozen=True, slots=True)
class Load:
    """Texts of one kind."""

    kind: str
    texts: list[str]


def make_load(kind: str, tokens: int, seed: int = 7) -> Load:
    """Make texts of `kind` with about `tokens` tokens together; always the same, in no order of length."""
    random = np.random.default_rng([seed, *kind.encode()])
    if kind == MIXED:
        drawn = KINDS[MIXED].draw(max(1, tokens // 45), random)
    else:
        drawn = [LENGTHS[kind] - SPECIAL] * max(1, tokens // LENGTHS[kind])
    return Load(kind, [sentences(words, random) for words in drawn])


def batches(lengths: list[int], most: int) -> list[list[int]]:
    """Number the texts of each batch: in their order, up to `most` tokens a batch, sorted by length within it."""
    parts: list[list[int]] = [[]]
    filled = 0
    for number, length in enumerate(lengths):
        if parts[-1] and filled + length > most:
            parts.append([])
            filled = 0
        parts[-1].append(number)
        filled += length
    return [sorted(part, key=lambda number: lengths[number]) for part in parts]
