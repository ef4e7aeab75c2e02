"""The texts of the workloads: three kinds of length, the same texts every time."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

import numpy as np

from tests.bench.workload.words import sentences


@dataclass(frozen=True, slots=True)
class Lengths:
    """Log-normal lengths in words, cut at both ends."""

    median: float
    sigma: float
    least: int
    most: int
    pool: int
    """How many distinct texts there are."""

    def draw(self, count: int, random: np.random.Generator) -> list[int]:
        drawn = random.lognormal(math.log(self.median), self.sigma, count)
        return [int(words) for words in np.clip(np.rint(drawn), self.least, self.most)]


KINDS = {
    "short": Lengths(median=6, sigma=0.35, least=3, most=14, pool=1024),
    "mixed": Lengths(median=37, sigma=0.55, least=4, most=230, pool=1024),
    "long": Lengths(median=170, sigma=0.08, least=130, most=200, pool=256),
}
"""Queries; passages of every length, 52 tokens on average; passages near the 256 tokens MiniLM reads."""


def make_texts(kind: str, count: int | None = None, seed: int = 20) -> list[str]:
    """Make the texts of a kind: its whole pool, or `count` of them."""
    lengths = KINDS[kind]
    random = np.random.default_rng([seed, *kind.encode()])
    return [sentences(words, random) for words in lengths.draw(count or lengths.pool, random)]


def digest(texts: list[str]) -> str:
    """Name a list of texts by its content."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]
