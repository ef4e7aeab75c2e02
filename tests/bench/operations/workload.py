"""What each operation is asked: texts of mixed lengths, and which library it stands beside. It must not know how."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from tests.bench.texts import make_texts

QUERIES = 4
"""How many queries the documents of `score` are shared out among: one request each."""
LABELS = ("person", "organisation", "place", "date", "product", "event")
SEED = 30


@dataclass(frozen=True, slots=True)
class Operation:
    """One row: a model, its library, and how much is asked at once."""

    name: str
    unit: str
    model: str
    """What the model is, for readers."""
    library: str
    count: int
    """Units of one pass; all are handed over at once, so that the library may sort them by length."""
    request: int
    """Units of one request to SIE; all requests of a pass are in flight together."""
    default_size: int
    """The library's own batch size."""
    sizes: tuple[int, ...] = (8, 16, 64)
    """Other batch sizes, of which the fastest counts."""


OPERATIONS = {
    each.name: each
    for each in (
        Operation("score", "pairs", "cross-encoder, MiniLM-L6", "CrossEncoder", 256, 64, 32),
        Operation("sparse", "texts", "SPLADE, DistilBERT", "SparseEncoder", 128, 32, 32),
        Operation("multivector", "texts", "ColBERT, MiniLM-L6", "MultiVectorEncoder", 256, 32, 32),
        Operation("extract", "texts", "GLiNER, DeBERTa-v3-small", "gliner", 64, 16, 8, (4, 16)),
    )
}


@dataclass(frozen=True, slots=True)
class Load:
    """The inputs of one pass."""

    texts: list[str]
    """The documents of `score`, the texts of the others."""
    queries: list[str]
    """One a document, runs of equal ones, for `score`; else empty."""
    labels: list[str]
    """For `extract`; else empty."""

    def first(self, count: int) -> Load:
        """Cut the load."""
        return Load(self.texts[:count], self.queries[:count], self.labels)

    def parts(self, size: int) -> Iterator[Load]:
        """Cut the load into requests of at most `size` texts, which ask the same query."""
        start = 0
        while start < len(self.texts):
            end = min(start + size, len(self.texts))
            if self.queries:
                end = next((at for at in range(start, end) if self.queries[at] != self.queries[start]), end)
            yield Load(self.texts[start:end], self.queries[start:end], self.labels)
            start = end

    def as_job(self) -> dict[str, Any]:
        """Spell it out for a child."""
        return asdict(self)


def make_load(operation: Operation, count: int) -> Load:
    """Make the inputs of a pass of `count` units, the same every time."""
    texts = make_texts("mixed", count, seed=SEED)
    if operation.name == "score":
        asked = make_texts("short", QUERIES, seed=SEED)
        each = -(-count // QUERIES)
        return Load(texts, [asked[place // each] for place in range(count)], [])
    return Load(texts, [], list(LABELS) if operation.name == "extract" else [])
