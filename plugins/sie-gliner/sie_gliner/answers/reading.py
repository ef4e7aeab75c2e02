"""Decodes the probabilities of one row: entities and relations with their places in the text. Runs on CPU threads."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sie_core.contracts import Entity, InvalidInput, ItemOutput, Relation
from sie_gliner.answers.merging import in_order
from sie_gliner.answers.spans import Span, Spans, choose, from_grid, from_listed, from_words
from sie_gliner.text.rows import Row

Arrays = Mapping[str, NDArray[Any]]
"""Results of a run by name.

Per row, an entry has `grid` (rows, words, widths, classes) and `words` (rows, words, classes, 3). For all rows together
it has `spans` (spans, classes) with `span_ends` (spans, 3): row, first and last word. It may have `relations` (pairs,
classes) with `pairs` (pairs, 5): row, first and last word of the head, and of the tail.
"""


def read(row: Row, place: int, results: Arrays) -> ItemOutput:
    """Read the result of `run` for the row at `place`."""
    try:
        return _read(row, place, results)
    except InvalidInput as error:
        return ItemOutput(refused=error.with_traceback(None))  # its frames would keep the results of the batch


def _read(row: Row, place: int, results: Arrays) -> ItemOutput:
    spans = _chosen(row, place, results)
    if row.choice.multi_label:
        row.tally.count_entities(row.own[0], _owned(row, spans.first))
    entities = [_entity(row, span) for span in spans]
    if any(math.isnan(float(results[name][place].sum())) for name in ("grid", "words") if name in results):
        # The engine refuses a score that is NaN; dropping it would look like an answer. For merged windows, its place
        # must be inside this window's own characters.
        begin = row.own[0]
        entities.append(Entity("", row.labels[0], math.nan, start=begin, end=begin))
    output = ItemOutput(entities=tuple(in_order(entities)))
    if "pairs" in results:
        output.relations = tuple(_relations(row, place, results, spans))
    return output


def _chosen(row: Row, place: int, results: Arrays) -> Spans:
    choice, classes = row.choice, len(row.labels)
    if "grid" in results:
        found = from_grid(results["grid"][place, : row.words, :, :classes], choice.threshold)
    elif "spans" in results:
        own = results["span_ends"][:, 0] == place
        found = from_listed(results["span_ends"][own, 1:], results["spans"][own, :classes], choice.threshold)
    else:
        found = from_words(results["words"][place, : row.words, :classes], choice.threshold)
    return choose(found, flat=choice.flat, multi_label=choice.multi_label)


def _entity(row: Row, span: Span) -> Entity:
    start, end = int(row.starts[span.first]), int(row.ends[span.last])
    return Entity(row.text[start:end], row.labels[span.kind], span.score, start=start, end=end)


def _relations(row: Row, place: int, results: Arrays, spans: Spans) -> list[Relation]:
    """Read the relations between entities that were chosen; by the places of head and tail."""
    labels = row.choice.relation_labels
    own = results["pairs"][:, 0] == place
    members = results["pairs"][own, 1:].reshape(-1, 2, 2)
    both = _are_chosen(members, spans).all(axis=1)
    scores = results["relations"][own][both, : len(labels)]
    pair, kind = np.nonzero(scores > row.choice.relation_threshold)
    row.tally.count_relations(row.own[0], _owned(row, members[both][pair, 0, 0]))
    known = {(span.first, span.last): _entity(row, span) for span in reversed(list(spans))}
    ends = members[both][pair].tolist()
    found = zip(ends, kind.tolist(), scores[pair, kind].tolist(), strict=True)
    return [
        relation(known[tuple(head)], known[tuple(tail)], labels[kind], score) for (head, tail), kind, score in found
    ]


def _owned(row: Row, words: NDArray[Any]) -> int:
    """Count the `words` that begin in the characters that the row's window owns; overlapping neighbours find the
    others.
    """
    begins = row.starts[words]
    return int(((begins >= row.own[0]) & (begins < row.own[1])).sum())


def _are_chosen(places: NDArray[Any], spans: Spans) -> NDArray[np.bool_]:
    """Return which places (…, 2) are those of a span."""
    beyond = int(max(places.max(initial=0), spans.last.max(initial=0))) + 1
    return np.isin(places[..., 0] * beyond + places[..., 1], spans.first * beyond + spans.last)


def relation(head: Entity, tail: Entity, label: str, score: float) -> Relation:
    """Relate two entities."""
    assert head.start is not None
    assert head.end is not None
    assert tail.start is not None
    assert tail.end is not None
    return Relation(
        head.text, tail.text, label, score=score, head_span=(head.start, head.end), tail_span=(tail.start, tail.end)
    )
