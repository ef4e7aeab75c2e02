"""The bodies of `POST /` in the shape of text-embeddings-inference (TEI), and the operation each asks for."""

from __future__ import annotations

from typing import Any, Literal

from sie_core.api.rerank.schema import RerankReply
from sie_core.api.schema import RootSchema
from sie_core.api.tei.predict import TeiPredictBody, TeiPrediction
from sie_core.api.tei.schema import TeiDocumentsBody, TeiEmbedBody, TeiRank, TeiRerankBody, TeiSparseValue
from sie_core.api.tei.similarity import TeiSimilarityBody

Wanted = Literal["ranks", "similarity", "classes"]


class TeiAnyBody(RootSchema[TeiEmbedBody | TeiSimilarityBody | TeiRerankBody | TeiDocumentsBody | TeiPredictBody]):
    """A request for vectors, to compare a `source_sentence`, to rerank with a `query`, or for classes."""


class TeiAnyReply(
    RootSchema[
        list[list[float]]
        | list[list[TeiSparseValue]]
        | list[float]
        | list[TeiRank]
        | RerankReply
        | list[TeiPrediction]
        | list[list[TeiPrediction]]
    ]
):
    """Dense vectors, or sparse ones of a model that gives no others, or similarities, or ranks, or classes."""


def wanted(body: Any) -> Wanted | None:
    """Say what a body asks for; None where it is left to the model."""
    if not isinstance(body, dict):
        return None
    if not body.keys().isdisjoint({"query", "texts", "documents"}):
        return "ranks"
    inputs, parameters = body.get("inputs"), body.get("parameters")
    if isinstance(inputs, dict) and not inputs.keys().isdisjoint({"source_sentence", "sentences"}):
        return "similarity"
    return "classes" if isinstance(parameters, dict) and parameters.get("candidate_labels") is not None else None
