"""`POST /v1/ranking`: the reranking of NVIDIA's clients over `score`."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

import orjson
from pydantic import BeforeValidator, FailFast, Field

from sie_core.api.fields.body import DialectBody
from sie_core.api.http.limits import MAX_DOCUMENTS
from sie_core.api.http.model_id import ModelId
from sie_core.api.inference.call import Call
from sie_core.api.inference.route import Operation, Route
from sie_core.api.native.item_schema import check_item_size
from sie_core.api.native.ranking import asked_about, rank_documents
from sie_core.api.openapi.examples import MODEL, Example
from sie_core.api.rerank.schema import TEXT_OR_MAP, Document, RerankUsage, Text, text_of
from sie_core.api.schema import Schema
from sie_core.contracts import InferenceReply, InferenceRequest, Item, Truncate
from sie_core.logs import request_fields

_PLACE: Final = re.compile(r"items\[(\d+)\]")
_TRUNCATE: Final[dict[str, Truncate]] = {"NONE": "error", "START": "start", "END": "end"}


class NvidiaRankingBody(DialectBody):
    """A query and passages. A field that is null counts as absent."""

    model: ModelId | None = Field(default=None, description="Absent: `SIE_DEFAULT_MODEL`.")
    query: Annotated[Text, BeforeValidator(text_of), TEXT_OR_MAP]
    passages: Annotated[list[Document], FailFast()] = Field(min_length=1, max_length=MAX_DOCUMENTS)
    truncate: Literal["NONE", "START", "END"] | None = Field(
        default=None, description="Which end of a text beyond the model's length is cut; `NONE` refuses it."
    )


class NvidiaRank(Schema):
    """A passage's place in the request, and its score."""

    index: int
    logit: float


class NvidiaRankingReply(Schema):
    """The passages by falling score, blank ones last; equal ones keep the order they were sent in."""

    rankings: list[NvidiaRank]
    usage: RerankUsage


def ranking_request(call: Call, body: NvidiaRankingBody) -> InferenceRequest:
    """Ask for scores. The model is not asked about blank passages.

    Raises:
        InvalidInput: A text is too large.
    """
    most = call.settings.max_item_text_bytes
    check_item_size(body.query, None, most, "query")
    for place, text in enumerate(body.passages):
        check_item_size(text, None, most, f"passages[{place}]")
    return InferenceRequest(
        model=call.model(body.model),
        operation="score",
        items=[Item(text=body.passages[place]) for place in asked_about(body.passages)],
        request_id=request_fields().request_id,
        query=Item(text=body.query),
        truncate=None if body.truncate is None else _TRUNCATE[body.truncate],
        wishes={"activation": "identity"},
        deadline=call.deadline,
    )


def field_name(param: str, body: NvidiaRankingBody) -> str:
    """Name the body's field for a field of the request to the backend."""
    if place := _PLACE.match(param):
        return f"passages[{asked_about(body.passages)[int(place[1])]}]"
    return "query" if param == "query.text" else param


def ranking_reply(call: Call, body: NvidiaRankingBody, reply: InferenceReply) -> bytes:
    """Write the ranks."""
    tokens = reply.usage.input_tokens
    ranks = [{"index": each.index, "logit": each.score} for each in rank_documents(body.passages, reply)]
    return orjson.dumps({"rankings": ranks, "usage": {"prompt_tokens": tokens, "total_tokens": tokens}})


ROUTE = Route(
    paths=("/v1/ranking",),
    name="nvidia_ranking",
    about="""\
Score passages against a query and rank them, as NVIDIA's rerankers do: a cross-encoder's scores are its logits.
""",
    body=NvidiaRankingBody,
    reply=NvidiaRankingReply,
    operation=Operation(NvidiaRankingBody, ranking_request, ranking_reply, field_name),
    dialect="openai",
    tag="nvidia",
    examples=(
        Example(
            "Two passages for a query",
            {
                "model": MODEL,
                "query": {"text": "who makes honey?"},
                "passages": [{"text": "The bakery opens at seven."}, {"text": "Bees make honey."}],
            },
            needs="score",
        ),
    ),
)
