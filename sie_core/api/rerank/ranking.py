"""The documents of a `score` in the order of their scores, for every route that shows them. It knows no route."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from sie_sdk import wire

from sie_core.contracts import InferenceReply


@dataclass(frozen=True, slots=True)
class RankedDocument:
    """A document with its score."""

    index: int
    """Its place in the request."""
    item_id: str | None
    score: float
    truncated: Mapping[str, int] | None = None
    """`tokens` and `kept`, where it was cut."""


def rank(reply: InferenceReply) -> list[RankedDocument]:
    """Rank the documents of a reply to `score`, the best first; equal ones keep the order of the request."""
    documents = []
    for index, item in enumerate(reply.items):
        fields = cast("dict[str, Any]", wire.unpack(item))
        documents.append(RankedDocument(index, fields["item_id"], fields["score"], fields.get("truncated")))
    return sorted(documents, key=lambda document: -document.score)
