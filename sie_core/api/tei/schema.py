"""The bodies of the routes that text-embeddings-inference (TEI) has.

Unknown fields are ignored, as TEI does.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import FailFast, Field

from sie_core.api.fields.body import DialectBody
from sie_core.api.fields.lengths import PairLength
from sie_core.api.http.limits import MAX_DOCUMENTS
from sie_core.api.http.model_id import ModelId
from sie_core.api.openai.schema import Input
from sie_core.api.openapi.error_schema import OpenAIErrorReply, TeiErrorReply
from sie_core.api.rerank.schema import INSTRUCTION, RerankBody, RerankReply, Text
from sie_core.api.schema import RootSchema, Schema

Direction = Literal["left", "right", "Left", "Right"]
TRUNCATE = Field(
    default=None, description="Whether a text beyond the model's length is cut, or else refused; absent: cut."
)
PROMPT_NAME = Field(
    default=None, description="Which prompt of the weights stands before each text: `query`, `document` or another."
)
MODEL = Field(
    default=None, description="Absent: that of the path, else `SIE_DEFAULT_MODEL`. TEI itself has no such field."
)
DIRECTION = Field(default=None, description="Which end of a text is cut; absent: `right` where `truncate` is true.")


class TeiEncodeBody(DialectBody):
    """What requests for vectors share. A field that is null counts as absent."""

    model: ModelId | None = MODEL
    inputs: Input
    prompt_name: str | None = PROMPT_NAME
    truncate: bool | None = TRUNCATE
    truncation_direction: Direction | None = DIRECTION


class TeiEmbedBody(TeiEncodeBody):
    """A request for dense vectors."""

    normalize: bool | None = Field(default=None, description="Whether vectors leave with unit length; absent: yes.")
    dimensions: int | None = Field(default=None, ge=1, description="A Matryoshka size the model declares.")
    encoding_format: Literal["float"] | None = None


class TeiSparseBody(TeiEncodeBody):
    """A request for sparse vectors."""


class TeiEmbedAllBody(TeiEncodeBody):
    """A request for a vector a token."""


class TeiRerankBody(PairLength):
    """A request to rerank. A field that is null counts as absent."""

    model: ModelId | None = MODEL
    query: Text
    texts: Annotated[list[str], FailFast()] = Field(min_length=1, max_length=MAX_DOCUMENTS)
    raw_scores: bool | None = Field(
        default=None,
        description="Whether a cross-encoder's scores are its logits; absent: no, they are between 0 and 1. "
        "A model that compares vectors gives what it finds.",
    )
    return_text: bool | None = Field(default=None, description="Whether each rank holds its text; absent: no.")
    truncate: bool | None = TRUNCATE
    truncation_direction: Direction | None = DIRECTION
    instruction: str | None = INSTRUCTION


class TeiVectors(RootSchema[list[list[float]]]):
    """A dense vector for each input, in the order of the inputs."""


class TeiSparseValue(Schema):
    """One entry of a sparse vector."""

    index: int
    value: float


class TeiSparseVectors(RootSchema[list[list[TeiSparseValue]]]):
    """A sparse vector for each input, in the order of the inputs; its entries by rising index."""


class TeiTokenVectors(RootSchema[list[list[list[float]]]]):
    """The vectors of the tokens of each input, in the order of the inputs."""


class TeiRank(Schema):
    """A text's place in the request, and its score."""

    index: int
    score: float
    text: str | None = None


class TeiRanks(RootSchema[list[TeiRank]]):
    """The texts by falling score, blank ones last; equal ones keep the order they were sent in."""


class TeiDocumentsBody(RerankBody):
    """A request to rerank `documents`, in Jina's shape."""

    model: ModelId | None = MODEL  # type: ignore[assignment]


class TeiRankingBody(RootSchema[TeiRerankBody | TeiDocumentsBody]):
    """A request to rerank `texts`, or `documents` as `/v1/rerank` has them."""


class TeiRankingReply(RootSchema[list[TeiRank] | RerankReply]):
    """The ranks of `texts`, or of `documents` in the shape of `/v1/rerank`."""


class TeiRankingErrorReply(RootSchema[TeiErrorReply | OpenAIErrorReply]):
    """Every failure; of requests with `documents` in OpenAI's shape."""
