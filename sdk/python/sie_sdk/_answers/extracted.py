"""Reading scores, entities and their like: maps of an answer into the typed dicts of results.

A map that lacks what it must have raises KeyError or TypeError; turning that into an error of the client is the
caller's affair.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sie_sdk.types import (
    Classification,
    DetectedObject,
    Entity,
    ExtractResult,
    ItemError,
    Relation,
    ScoreEntry,
    Truncated,
)


def score_entry(entry: Mapping[str, Any]) -> ScoreEntry:
    """Read one document of a ranking."""
    read = ScoreEntry(item_id=str(entry["item_id"]), score=float(entry["score"]), rank=int(entry["rank"]))
    if entry.get("truncated") is not None:
        read["truncated"] = read_truncated(entry["truncated"])
    return read


def extract_result(item: Mapping[str, Any]) -> ExtractResult:
    """Read what was extracted from one item; kinds the server left out are empty."""
    result = ExtractResult(
        entities=[_entity(each) for each in item.get("entities") or ()],
        relations=[_relation(each) for each in item.get("relations") or ()],
        classifications=[_classification(each) for each in item.get("classifications") or ()],
        objects=[_object(each) for each in item.get("objects") or ()],
    )
    if item.get("id") is not None:
        result["id"] = str(item["id"])
    if item.get("data"):
        result["data"] = dict(item["data"])
    if item.get("error") is not None:
        result["error"] = _error(item["error"])
    if item.get("truncated") is not None:
        result["truncated"] = read_truncated(item["truncated"])
    return result


def read_truncated(truncated: Mapping[str, Any]) -> Truncated:
    """Read what was cut of a text."""
    return {"tokens": int(truncated["tokens"]), "kept": int(truncated["kept"])}


def _entity(entity: Mapping[str, Any]) -> Entity:
    start, end, bbox = entity.get("start"), entity.get("end"), entity.get("bbox")
    return {
        "text": str(entity["text"]),
        "label": str(entity["label"]),
        "score": float(entity["score"]),
        "start": None if start is None else int(start),
        "end": None if end is None else int(end),
        "bbox": None if bbox is None else [float(number) for number in bbox],
    }


def _relation(relation: Mapping[str, Any]) -> Relation:
    read = Relation(
        head=str(relation["head"]),
        tail=str(relation["tail"]),
        relation=str(relation["relation"]),
        score=float(relation["score"]),
    )
    if relation.get("head_span") is not None:
        read["head_span"] = [int(place) for place in relation["head_span"]]
    if relation.get("tail_span") is not None:
        read["tail_span"] = [int(place) for place in relation["tail_span"]]
    return read


def _classification(classification: Mapping[str, Any]) -> Classification:
    return {"label": str(classification["label"]), "score": float(classification["score"])}


def _object(found: Mapping[str, Any]) -> DetectedObject:
    return {
        "label": str(found["label"]),
        "score": float(found["score"]),
        "bbox": [float(number) for number in found["bbox"]],
    }


def _error(error: Any) -> ItemError:
    if isinstance(error, Mapping) and isinstance(error.get("code"), str):
        return {"code": error["code"], "message": str(error.get("message") or error["code"])}
    return {"code": "INTERNAL_ERROR", "message": str(error)}
