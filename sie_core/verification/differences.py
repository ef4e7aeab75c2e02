"""The distance of two outputs of one kind, as a number."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sie_core.contracts import Compared, Item, ItemOutput, OutputType, SparseVector


@dataclass(frozen=True, slots=True)
class Difference:
    """The distance of outputs."""

    deviation: float = 0.0
    """The largest difference, relative to the reference's largest number if above 1; infinite if they cannot be
    compared.
    """
    note: str = ""
    """Their difference, if it is not a number."""
    numbers: int = 0
    """Count of compared numbers."""


@dataclass(frozen=True, slots=True)
class _Apart:
    """The distance of two outputs."""

    far: float = 0.0
    largest: float = 0.0
    """The reference's largest number."""
    numbers: int = 0
    note: str = ""


def difference(kind: Compared, ours: Sequence[ItemOutput], theirs: Sequence[ItemOutput]) -> Difference:
    """Compare the `kind` of outputs, item by item."""
    apart = [_apart(getattr(one, kind), getattr(other, kind)) for one, other in zip(ours, theirs, strict=True)]
    notes = [f"item {place + 1}: {each.note}" for place, each in enumerate(apart) if each.note]
    scale = max(1.0, *(each.largest for each in apart))
    return Difference(
        max(each.far for each in apart) / scale, next(iter(notes), ""), sum(each.numbers for each in apart)
    )


def _apart(one: Any, other: Any) -> _Apart:
    if one is None or other is None:
        return _Apart() if one is other else _Apart(inf, note="only one of the two gives it")
    if isinstance(other, SparseVector):
        one, other = _spelled_out(one, other)
    if isinstance(other, np.ndarray):
        return _arrays(np.asarray(one), other)
    return _named(_scores(one), _scores(other))


def _spelled_out(one: SparseVector, other: SparseVector) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Lay both over the union of their indices: a value near zero may be missing from one."""
    indices = np.union1d(one.indices, other.indices)
    full = np.zeros((2, len(indices)), dtype=np.float32)
    for row, sparse in zip(full, (one, other), strict=True):
        row[np.searchsorted(indices, sparse.indices)] = sparse.values
    return full[0], full[1]


def _arrays(one: NDArray[Any], other: NDArray[Any]) -> _Apart:
    if one.shape != other.shape:
        return _Apart(inf, note=f"it has shape {one.shape}, and the reference's {other.shape}")
    if not other.size:
        return _Apart()
    far = float(np.abs(one.astype(np.float64) - other).max())
    return _Apart(inf if np.isnan(far) else far, float(np.abs(other).max()), other.size)


def _scores(value: Any) -> Mapping[Hashable, float]:
    """Map the subject of every score to it; a subject without a score counts as 0."""
    if isinstance(value, float | int):
        return {"score": float(value)}
    if isinstance(value, Mapping):
        return {repr(value): 0.0} if value else {}
    return {replace(each, score=0.0): float(each.score) for each in value}


def _named(one: Mapping[Hashable, float], other: Mapping[Hashable, float]) -> _Apart:
    if one.keys() != other.keys():
        lacking, more = other.keys() - one.keys(), one.keys() - other.keys()
        said = [f"{len(each)} {word}" for each, word in ((lacking, "missing"), (more, "too many")) if each]
        return _Apart(inf, note=f"{' and '.join(said)}, such as {min(map(str, lacking or more))}")
    far = max((abs(one[name] - other[name]) for name in other), default=0.0)
    return _Apart(far, max(map(abs, other.values()), default=0.0), len(other))


def scores(
    encode: Callable[[Sequence[Item], str], Sequence[ItemOutput]],
    query: Item,
    documents: Sequence[Item],
    by: OutputType,
    similarity: Callable[[ItemOutput, ItemOutput], float | None] = lambda query, document: None,
) -> list[ItemOutput]:
    """Score documents by a reference's vectors and its own similarity; else by the dot product, or MaxSim.

    Args:
        encode: Encodes items as `query` or as `document`.
        query: The query.
        documents: The documents to score.
        by: The output to compare.
        similarity: The reference's similarity; returns None if it has none.
    """
    (asked,) = encode([query], "query")

    def score(document: ItemOutput) -> float:
        said = similarity(asked, document)
        return _product(getattr(asked, by), getattr(document, by)) if said is None else said

    return [ItemOutput(score=score(each)) for each in encode(documents, "document")]


def _product(query: Any, document: Any) -> float:
    one, other = (np.asarray(each, dtype=np.float64) for each in _dense(query, document))
    if one.ndim == 1:
        return float(one @ other)
    return float((one @ other.T).max(axis=1).sum()) if len(one) and len(other) else 0.0


def _dense(query: Any, document: Any) -> tuple[Any, Any]:
    return _spelled_out(query, document) if isinstance(query, SparseVector) else (query, document)
