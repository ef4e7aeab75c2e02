"""The bodies of the routes that text-embeddings-inference (TEI) has.

Fields they do not name are ignored, as TEI does. They must not know the backend.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, FailFast, Field, RootModel

from sie_core.api.http.limits import MAX_DOCUMENTS, MAX_EMBEDDING_INPUTS
from sie_core.api.native.item_schema import STRICT
from sie_core.api.openai.schema import Input
from sie_core.api.rerank.schema import Text

Direction = Literal["left", "right", "Left", "Right"]
_TRUNCATE = Field(
    default=None, description="Whether a text beyond the model's length is cut, or else refused; absent: cut."
)
_DIRECTION = Field(default=None, description="Which end of a text is cut; absent: `right` where `truncate` is true.")


class TeiEncodeBody(BaseModel):
    """What requests for vectors share. A field that is null counts as absent."""

    model_config = STRICT

    inputs: Input
    prompt_name: str | None = Field(
        default=None, description="Which prompt of the weights stands before each text: `query`, `document` or another."
    )
    truncate: bool | None = _TRUNCATE
    truncation_direction: Direction | None = _DIRECTION


class TeiEmbedBody(TeiEncodeBody):
    """A request for dense vectors."""

    normalize: bool | None = Field(default=None, description="Whether vectors leave with unit length; absent: yes.")
    dimensions: int | None = Field(default=None, ge=1, description="A Matryoshka size the model declares.")
    encoding_format: Literal["float"] | None = None


class TeiSparseBody(TeiEncodeBody):
    """A request for sparse vectors."""


class TeiRerankBody(BaseModel):
    """A request to rerank. A field that is null counts as absent."""

    model_config = STRICT

    query: Text
    texts: Annotated[list[str], FailFast()] = Field(min_length=1, max_length=MAX_DOCUMENTS)
    raw_scores: bool | None = Field(
        default=None,
        description="Whether a cross-encoder's scores are its logits; absent: no, they are between 0 and 1. "
        "A model that compares vectors gives what it finds.",
    )
    return_text: bool | None = Field(default=None, description="Whether each rank holds its text; absent: no.")
    truncate: bool | None = _TRUNCATE
    truncation_direction: Direction | None = _DIRECTION


class TeiVectors(RootModel[list[list[float]]]):
    """A dense vector for each input, in the order of the inputs."""


class TeiSparseValue(BaseModel):
    """One entry of a sparse vector."""

    index: int
    value: float


class TeiSparseVectors(RootModel[list[list[TeiSparseValue]]]):
    """A sparse vector for each input, in the order of the inputs; its entries by rising index."""


class TeiRank(BaseModel):
    """A text's place in the request, and its score."""

    index: int
    score: float
    text: str | None = None


class TeiRanks(RootModel[list[TeiRank]]):
    """The texts by falling score; equal ones keep the order they were sent in."""


class TeiAnyBody(RootModel[TeiEmbedBody | TeiRerankBody]):
    """A request for vectors or, where it holds `query` or `texts`, to rerank."""


class TeiAnyReply(RootModel[list[list[float]] | list[list[TeiSparseValue]] | list[TeiRank]]):
    """Dense vectors, or sparse ones of a model that gives no others, or ranks."""


class TeiInfo(BaseModel):
    """What is served, and its limits. What only the loaded weights tell is null before."""

    model_id: str
    model_sha: str | None
    model_dtype: str | None
    model_type: dict[str, dict[str, object]] = Field(description="`embedding` or `reranker`.")
    max_concurrent_requests: int
    max_input_length: int | None
    max_batch_tokens: int
    max_batch_requests: int
    max_client_batch_size: int = Field(examples=[MAX_EMBEDDING_INPUTS])
    auto_truncate: bool
    tokenization_workers: int | None
    version: str
    sha: str | None
    docker_label: str | None
