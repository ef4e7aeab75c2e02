"""Ranks the documents of a `score` by their scores, for every route that returns them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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


def asked_about(documents: Sequence[str]) -> list[int]:
    """List the places of the documents that the model scores: all that are not blank, or the first where all are."""
    return [place for place, text in enumerate(documents) if text.strip()] or [0]


def rank_documents(documents: Sequence[str], reply: InferenceReply) -> list[RankedDocument]:
    """Rank all `documents` by the scores of those `asked_about`; blank ones come last.

    The score of a blank one is 0, or the lowest of the others where that is below 0.
    """
    places = asked_about(documents)
    ranked = [replace(each, index=places[each.index]) for each in rank(reply)]
    ranked = [each for each in ranked if documents[each.index].strip()]
    lowest = min(0.0, ranked[-1].score) if ranked else 0.0
    blank = [place for place, text in enumerate(documents) if not text.strip()]
    return ranked + [RankedDocument(place, None, lowest) for place in blank]
