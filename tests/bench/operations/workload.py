"""What each operation is asked: texts of mixed lengths, and which library it stands beside."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from tests.bench.workload.texts import make_texts

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
    kind: str = ""
    """What is asked of the model, and how, where the name says more: another operation's name, or `dense`."""
    wanted: float = 1.5
    """Units a second over the library's at its best batch size, at least."""

    @property
    def asked(self) -> str:
        """How the model is asked, and what its answers are."""
        return self.kind or self.name


OPERATIONS = {
    each.name: each
    for each in (
        Operation("score", "pairs", "cross-encoder, MiniLM-L6", "CrossEncoder", 256, 64, 32),
        Operation(
            "score by DeBERTa", "pairs", "cross-encoder, DeBERTa-v3-small", "CrossEncoder", 128, 64, 32, kind="score",
            wanted=3.0,
        ),
        Operation("sparse", "texts", "SPLADE, DistilBERT", "SparseEncoder", 128, 32, 32),
        Operation("multivector", "texts", "ColBERT, MiniLM-L6", "MultiVectorEncoder", 256, 32, 32),
        Operation("extract", "texts", "GLiNER, DeBERTa-v3-small", "gliner", 64, 16, 8, (4, 16)),
        Operation(
            "encode by Qwen3", "texts", "Qwen3-Embedding-0.6B", "SentenceTransformer", 8, 4, 32, (4,), kind="dense"
        ),
        Operation(
            "encode by Gemma", "texts", "EmbeddingGemma-300M", "SentenceTransformer", 32, 16, 32, (8,), kind="dense"
        ),
        Operation(
            "encode by MPNet", "texts", "all-mpnet-base-v2", "SentenceTransformer", 64, 32, 32, (8,), kind="dense",
            wanted=2.5,
        ),
    )
}  # fmt: skip


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
    if operation.asked == "score":
        asked = make_texts("short", QUERIES, seed=SEED)
        each = -(-count // QUERIES)
        return Load(texts, [asked[place // each] for place in range(count)], [])
    return Load(texts, [], list(LABELS) if operation.asked == "extract" else [])
