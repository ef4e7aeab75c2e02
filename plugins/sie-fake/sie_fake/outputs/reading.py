"""Scores and extractions of the fakes, by rules that a test can work out by eye from each row's own text."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sie_core.contracts import Classification, DetectedObject, Entity, ItemOutput, Relation, preemption_point
from sie_fake.inputs.rows import Row

THRESHOLD = 0.5
PART = 256
"""Entities between two preemption points of a run."""
_ENTITY = re.compile(r"(?P<label>[^\s=]+)=(?P<text>[^\s=]+)")
_RELATION = re.compile(r"(?P<head>\w+)-(?P<relation>\w+)->(?P<tail>\w+)")


def score(query: Sequence[str], words: Sequence[str]) -> float:
    """Return the share of the query's words that the document contains, each counted as often as in both; 0 to 1."""
    return sum(word in words for word in query) / max(1, len(query))


def extract(row: Row) -> ItemOutput:
    """Extract from one row.

    `person=Ada` is an entity `Ada` with the label `person`; `Ada-knows->Bob` is a relation. A label that occurs in the
    text as a word classifies it. An image holds one object, as wide as the image has bytes. `output_schema` asks for
    the entities named by its properties.
    """
    entities = tuple(_entities(row))
    return ItemOutput(
        entities=entities,
        relations=tuple(_relations(row)),
        classifications=tuple(_classifications(row)),
        objects=tuple(
            DetectedObject(image.format or "image", 1.0, (0.0, 0.0, float(len(image.data)), 1.0))
            for image in row.media.images
        ),
        data=_data(row.task.output_schema, entities),
    )


def confidence(text: str) -> float:
    """Return the score of an entity: from 0.5 to 1, by a hash of its text."""
    return 0.5 + zlib.crc32(text.encode("utf-8", "surrogatepass")) % 1000 / 2000


def _entities(row: Row) -> Iterator[Entity]:
    point = preemption_point()
    for number, match in enumerate(_ENTITY.finditer(row.text)):
        if point is not None and number % PART == PART - 1:
            point()
        label, text = match["label"], match["text"]
        if not row.task.labels or label in row.task.labels:
            start, end = (row.offset + place for place in match.span("text"))
            yield Entity(text, label, confidence(text), start=start, end=end)


def _relations(row: Row) -> Iterator[Relation]:
    for match in _RELATION.finditer(row.text):
        head, tail = (_moved(match.span(name), row.offset) for name in ("head", "tail"))
        yield Relation(match["head"], match["tail"], match["relation"], score=1.0, head_span=head, tail_span=tail)


def _moved(span: tuple[int, int], offset: int) -> tuple[int, int]:
    return span[0] + offset, span[1] + offset


def _classifications(row: Row) -> Iterator[Classification]:
    shares = [(label, row.words.count(label) / max(1, len(row.words))) for label in row.task.labels]
    for label, share in sorted(shares, key=lambda each: -each[1]):
        if share:
            yield Classification(label, share)


def _data(schema: Mapping[str, Any] | None, entities: Sequence[Entity]) -> Mapping[str, Any]:
    wanted = (schema or {}).get("properties") or {}
    return {name: [each.text for each in entities if each.label == name] for name in wanted}


def above_threshold(output: ItemOutput, threshold: float) -> ItemOutput:
    """Leave out the entities a fake is less sure of; NaN, which a test may ask for, is less than nothing."""
    output.entities = tuple(each for each in output.entities or () if not each.score < threshold)
    return output


def merged(outputs: Sequence[ItemOutput]) -> ItemOutput:
    """Join the extractions of one text's windows, in their order."""
    data: dict[str, Any] = {}
    for output in outputs:
        for name, found in (output.data or {}).items():
            data[name] = [*data.get(name, []), *found]
    best: dict[str, float] = {}
    for each in (each for output in outputs for each in output.classifications or ()):
        best[each.label] = max(each.score, best.get(each.label, 0.0))
    return ItemOutput(
        entities=tuple(each for output in outputs for each in output.entities or ()),
        relations=tuple(each for output in outputs for each in output.relations or ()),
        classifications=tuple(
            Classification(label, share) for label, share in sorted(best.items(), key=lambda item: -item[1])
        ),
        objects=tuple(each for output in outputs for each in output.objects or ()),
        data=data,
    )
