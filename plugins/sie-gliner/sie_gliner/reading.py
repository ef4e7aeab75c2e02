"""What the probabilities of one row say: entities and relations with their places in the text.

It runs on CPU threads and knows arrays, no tensor.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sie_core.contracts import Entity, ItemOutput, Relation
from sie_gliner.merging import in_order
from sie_gliner.rows import Row
from sie_gliner.spans import Span, choose, from_grid, from_listed, from_words

Arrays = Mapping[str, NDArray[Any]]
"""Results of a run by name, an entry a row: `grid` (rows, words, widths, classes) or `words` (rows, words, classes, 3),
perhaps `spans` (rows, spans, classes) with `span_ends` and `span_mask`; of relations `relations` (rows, pairs,
classes), `pairs` and `pair_mask`, whose numbers are places in `members` (rows, spans, 2)."""


def read(row: Row, place: int, results: Arrays) -> ItemOutput:
    """Read what run found in the row at `place`."""
    spans = _chosen(row, place, results)
    entities = [_entity(row, span) for span in spans]
    if any(math.isnan(float(results[name][place].sum())) for name in ("grid", "words", "spans") if name in results):
        # The engine refuses a score that is no number; silence would look like an answer. Where windows are merged, it
        # must lie where this one's entities do.
        begin = row.own[0]
        entities.append(Entity("", row.labels[0], math.nan, begin, begin))
    output = ItemOutput(entities=tuple(in_order(entities)))
    if "pairs" in results:
        output.relations = tuple(_relations(row, place, results, spans))
    return output


def _chosen(row: Row, place: int, results: Arrays) -> list[Span]:
    choice, classes = row.choice, len(row.labels)
    if "grid" in results:
        found = from_grid(results["grid"][place, : row.words, :, :classes], choice.threshold)
    elif "spans" in results:
        kept = results["span_mask"][place].astype(bool)
        listed = results["spans"][place, kept, :classes]
        found = from_listed(results["span_ends"][place, kept], listed, choice.threshold)
    else:
        found = from_words(results["words"][place, : row.words, :classes], choice.threshold)
    return choose(found, flat=choice.flat, multi_label=choice.multi_label)


def _entity(row: Row, span: Span) -> Entity:
    start, end = int(row.starts[span.first]), int(row.ends[span.last])
    return Entity(row.text[start:end], row.labels[span.kind], span.score, start, end)


def _relations(row: Row, place: int, results: Arrays, spans: Sequence[Span]) -> list[Relation]:
    """Read the relations between entities that were chosen; by the places of head and tail."""
    labels = row.choice.relation_labels
    known = {(span.first, span.last): _entity(row, span) for span in reversed(spans)}
    likely = results["relations"][place, :, : len(labels)] > row.choice.relation_threshold
    found = []
    for pair, kind in zip(*np.nonzero(likely & results["pair_mask"][place].astype(bool)[:, None]), strict=True):
        members = results["members"][place][results["pairs"][place, pair]]
        head, tail = (known.get(tuple(member)) for member in members.tolist())
        if head is not None and tail is not None:
            score = float(results["relations"][place, pair, kind])
            found.append(relation(head, tail, labels[kind], score))
    return found


def relation(head: Entity, tail: Entity, label: str, score: float) -> Relation:
    """Relate two entities."""
    assert head.start is not None
    assert head.end is not None
    assert tail.start is not None
    assert tail.end is not None
    return Relation(head.text, tail.text, label, score, (head.start, head.end), (tail.start, tail.end))
