"""Whether a search finds the same: SIE's vectors against float32 sentence-transformers, ranking against ranking."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tests.bench.clients.formats import Vectors
from tests.bench.processes.running import Server
from tests.bench.workload.reference import reference
from tests.bench.workload.texts import make_texts

DOCUMENTS = 4000
QUERIES = 1000
QUERY_WORDS = 8
AT = 10
REQUEST = 64
"""Texts a request; several requests at a time would change nothing but the batches."""


@dataclass(frozen=True, slots=True)
class Accuracy:
    """How one ranking of the documents by each query compares with another."""

    queries: int
    documents: int
    overlap: float
    """Mean share of the first `AT` documents that both rankings have."""
    equal_first: float
    """Share of queries with the same first document."""
    swapped_pairs: int
    """Neighbours of the reference's first `AT`, and what displaced them, in the other order."""
    widest_swap: float
    """The largest reference-score gap of a swapped pair."""
    least_cosine: float
    largest_difference: float


def measure(server: Server, threads: int, queries: int = QUERIES, documents: int = DOCUMENTS) -> Accuracy:
    """Encode documents and queries with a server and rank."""
    corpus = make_texts("mixed", documents, seed=21)
    asked = make_queries(corpus, queries)
    expected = reference([*corpus, *asked], threads).vectors
    texts = [*corpus, *asked]
    vectors = np.concatenate([server.encode(part) for part in _parts(texts)])
    return compare(vectors[documents:], vectors[:documents], expected[documents:], expected[:documents])


def make_queries(corpus: list[str], count: int, seed: int = 22) -> list[str]:
    """Cut queries out of documents, so that there is something to find."""
    random = np.random.default_rng(seed)
    queries = []
    for place in random.permutation(len(corpus))[:count]:
        words = corpus[place].split()
        start = int(random.integers(max(1, len(words) - QUERY_WORDS)))
        queries.append(" ".join(words[start : start + QUERY_WORDS]))
    return queries


def compare(queries: Vectors, documents: Vectors, expected_queries: Vectors, expected_documents: Vectors) -> Accuracy:
    """Compare the rankings by cosine; vectors are normalised."""
    scores = queries.astype(np.float64) @ documents.T.astype(np.float64)
    wanted = expected_queries.astype(np.float64) @ expected_documents.T.astype(np.float64)
    tops, wanted_tops = _first(scores), _first(wanted)
    overlap = np.mean([len(np.intersect1d(*pair)) / AT for pair in zip(tops, wanted_tops, strict=True)])
    swaps = [
        gap for row in range(len(queries)) for gap in swapped(scores[row], wanted[row], tops[row], wanted_tops[row])
    ]
    ours, theirs = np.concatenate([queries, documents]), np.concatenate([expected_queries, expected_documents])
    return Accuracy(
        queries=len(queries),
        documents=len(documents),
        overlap=float(overlap),
        equal_first=float(np.mean(tops[:, 0] == wanted_tops[:, 0])),
        swapped_pairs=len(swaps),
        widest_swap=max(swaps, default=0.0),
        least_cosine=float((ours * theirs).sum(axis=1).min()),
        largest_difference=float(np.abs(ours - theirs).max()),
    )


def swapped(
    scores: NDArray[np.float64], wanted: NDArray[np.float64], top: NDArray[np.int64], wanted_top: NDArray[np.int64]
) -> Iterator[float]:
    """List the reference-score gap of every pair, among the documents either ranking puts first, in another order."""
    either = np.union1d(top, wanted_top)
    gaps = wanted[either][:, None] - wanted[either][None, :]
    ours = scores[either][:, None] - scores[either][None, :]
    yield from (float(gap) for gap in gaps[(gaps > 0) & (ours < 0)])


def _first(scores: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.argsort(-scores, axis=1, kind="stable")[:, :AT]


def _parts(texts: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(texts), REQUEST):
        yield texts[start : start + REQUEST]
