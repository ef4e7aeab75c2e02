"""Encodes the extraction of one item, and the score of one document, as the wire's maps."""

from __future__ import annotations

from typing import Any

from sie_sdk.wire import Made, pack, pack_in_parts

from sie_core.contracts import (
    Box,
    Classification,
    DetectedObject,
    Entity,
    ItemOutput,
    Relation,
    Truncation,
)


def encode_score(score: float, item_id: str | None = None, truncated: Truncation | None = None) -> bytes:
    """Pack the score of one document as one msgpack map; the API ranks the documents."""
    return pack({"item_id": item_id, "score": float(score), **truncation(truncated)})


def encode_extraction(output: ItemOutput, item_id: str | None = None, truncated: Truncation | None = None) -> bytes:
    """Pack the extraction of one item as one msgpack map with every kind of output, also empty ones."""
    fields: dict[str, Any] = {
        "id": item_id,
        "entities": Made(output.entities or (), _entity),
        "relations": Made(output.relations or (), _relation),
        "classifications": Made(output.classifications or (), _classification),
        "objects": Made(output.objects or (), _object),
        "data": output.data or {},
    }
    return pack_in_parts(fields | truncation(truncated))


def truncation(truncated: Truncation | None) -> dict[str, Any]:
    """Return the field `truncated` of an item that was cut; empty for any other."""
    if truncated is None:
        return {}
    floor = {"at_least": True} if truncated.at_least else {}
    return {"truncated": {"tokens": truncated.tokens, "kept": truncated.kept, **floor}}


def _entity(entity: Entity) -> dict[str, Any]:
    return {
        "text": entity.text,
        "label": entity.label,
        "score": float(entity.score),
        "start": entity.start,
        "end": entity.end,
        "bbox": None if entity.bbox is None else _box(entity.bbox),
    }


def _relation(relation: Relation) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "head": relation.head,
        "tail": relation.tail,
        "relation": relation.relation,
        "score": float(relation.score),
    }
    for name, span in (("head_span", relation.head_span), ("tail_span", relation.tail_span)):
        if span is not None:
            fields[name] = list(span)
    return fields


def _classification(classification: Classification) -> dict[str, Any]:
    return {"label": classification.label, "score": float(classification.score)}


def _object(found: DetectedObject) -> dict[str, Any]:
    return {"label": found.label, "score": float(found.score), "bbox": _box(found.bbox)}


def _box(box: Box) -> list[float]:
    return [float(number) for number in box]
