"""The bodies of the rerank routes: `/v1/rerank` as Jina has it, `/v2/rerank` as Cohere has it.

Unknown fields are ignored, as those services do.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, FailFast, Field, WithJsonSchema

from sie_core.api.fields.lengths import PairLength
from sie_core.api.http.limits import MAX_DOCUMENTS
from sie_core.api.http.model_id import ModelId
from sie_core.api.native.item_schema import Options
from sie_core.api.schema import Schema


def text_of(value: Any) -> Any:
    """Take `{"text": …}`, which some clients send in place of a text; other keys are ignored."""
    if not isinstance(value, dict):
        return value
    if not isinstance(value.get("text"), str):
        held = ", ".join(map(str, value))[:100] or "nothing"
        raise ValueError(f'must be a text or {{"text": "…"}}, and is a map of {held}')
    return value["text"]


def _not_blank(value: str) -> str:
    if not value.strip():
        raise ValueError("is blank; leave it out")
    return value


Text = Annotated[str, AfterValidator(_not_blank), WithJsonSchema({"type": "string", "pattern": r"\S"})]
TEXT_OR_MAP = WithJsonSchema(
    {
        "anyOf": [
            {"type": "string"},
            {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
        ]
    }
)
Document = Annotated[str, BeforeValidator(text_of), TEXT_OR_MAP]
Documents = Annotated[list[Document], FailFast(), Field(min_length=1, max_length=MAX_DOCUMENTS)]
_TOP_N = Field(default=None, ge=1, description="How many of the best are returned; absent: all.")
_RETURN_DOCUMENTS = Field(default=None, description="Whether each result holds its document; absent: no.")
_RAW_SCORES = Field(default=None, description="Whether a cross-encoder's logits are given as they are; absent: no.")
INSTRUCTION = Field(default=None, description="Of the query, for models that take one.")
_Switch = Annotated[bool, Field(strict=False)]
"""Clients that build a body of texts write `"true"`."""


class RankingBody(PairLength):
    """What both have: a query and documents."""

    model: ModelId
    query: Text
    documents: Documents
    top_n: int | None = _TOP_N
    top_k: int | None = Field(default=None, ge=1, description="Voyage's name of `top_n`.")
    truncation: bool | None = Field(
        default=None, description="Voyage's: whether a text beyond the model's length is cut, or else refused."
    )
    return_documents: _Switch | None = _RETURN_DOCUMENTS
    raw_scores: _Switch | None = _RAW_SCORES
    instruction: str | None = INSTRUCTION

    @property
    def is_voyage_s(self) -> bool:
        """Whether a request has fields that Voyage's API alone has."""
        return self.top_k is not None or self.truncation is not None


class RerankBody(RankingBody):
    """A request to rerank, in Jina's shape. A field that is null counts as absent."""

    options: Options | None = None


class CohereRerankBody(RankingBody):
    """A request to rerank, in Cohere's shape. A field that is null counts as absent."""


class RerankedText(Schema):
    """A document, as it was sent."""

    text: str


class RerankResult(Schema):
    """A document's place in the request, and its score."""

    index: int
    relevance_score: float
    document: RerankedText | None = None


class RerankUsage(Schema):
    """Tokens of every pair, counted by the model's own tokenizer after truncation."""

    prompt_tokens: int
    total_tokens: int


class RerankReply(Schema):
    """The documents by falling score, blank ones last; equal ones keep the order they were sent in."""

    object: str = Field(examples=["list"])
    model: str
    results: list[RerankResult]
    data: list[RerankResult] | None = Field(
        default=None, description="`results` again, as Voyage's clients read them, where a request has their fields."
    )
    usage: RerankUsage


class CohereVersion(Schema):
    """Which version of Cohere's API the reply is in the shape of."""

    version: str


class CohereTokens(Schema):
    """Tokens of every text or pair, counted by the model's own tokenizer after truncation."""

    input_tokens: int


class CohereMeta(Schema):
    """What Cohere's clients read beside the results."""

    api_version: CohereVersion
    tokens: CohereTokens


class CohereRerankReply(Schema):
    """The documents by falling score, blank ones last, in Cohere's shape; equal ones keep the order of the request."""

    id: str = Field(description="The request's id.")
    results: list[RerankResult]
    meta: CohereMeta
