"""The bodies of `/v1/embed` and `/v2/embed`, as Cohere has them.

Unknown fields are ignored, as Cohere's clients expect.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from sie_core.api.body.embedding_types import EmbeddingType
from sie_core.api.fields.body import DialectBody
from sie_core.api.http.limits import MAX_EMBEDDING_INPUTS
from sie_core.api.http.model_id import ModelId
from sie_core.api.rerank.schema import CohereMeta, CohereTokens
from sie_core.api.schema import Schema

CohereInputType = Literal["search_document", "search_query", "classification", "clustering", "image"]
SOURCES = ("texts", "images", "inputs")


def _not_taken(value: Any) -> None:
    if value is not None:
        raise ValueError("is not taken here; `truncate` says what becomes of a text beyond the model's length")


class CohereImageUrl(DialectBody):
    """A picture of a content."""

    url: str = Field(description="A `data:` URI or base64; addresses are not fetched.")


class CohereContent(DialectBody):
    """A part of an input: a text or a picture."""

    type: Literal["text", "image_url"]
    text: str | None = None
    image_url: CohereImageUrl | None = None


class CohereInput(DialectBody):
    """One thing to embed: a text, pictures, or both together."""

    content: list[CohereContent] = Field(min_length=1)


_Many = Field(default=None, min_length=1, max_length=MAX_EMBEDDING_INPUTS)


class CohereEmbedBody(DialectBody):
    """A request for embeddings: `texts`, `images` or `inputs`. A field that is null counts as absent."""

    model: ModelId | None = Field(default=None, description="Absent: `SIE_DEFAULT_MODEL`.")
    texts: list[str] | None = _Many
    images: list[str] | None = _Many
    inputs: list[CohereInput] | None = _Many
    input_type: CohereInputType | None = Field(
        default=None,
        description="Selects the model's query or document prompt; `classification` and `clustering` the weights' "
        "prompts of those names, where there are such.",
    )
    embedding_types: list[EmbeddingType] | None = Field(
        default=None, min_length=1, description="Absent: `float`; without a name on `/v1/embed`."
    )
    output_dimension: int | None = Field(default=None, ge=1, description="A Matryoshka size the model declares.")
    truncate: Literal["NONE", "START", "END"] | None = Field(
        default=None,
        description="Where a text beyond the model's length is cut, or `NONE` to refuse it; absent: `END`.",
    )
    max_tokens: Annotated[None, BeforeValidator(_not_taken)] = Field(default=None, description="Not taken.")

    @model_validator(mode="after")
    def _one_source(self) -> CohereEmbedBody:
        if [getattr(self, name) is None for name in SOURCES].count(False) != 1:
            raise ValueError(f"must hold one of {', '.join(f'`{name}`' for name in SOURCES)}")
        return self

    @property
    def source(self) -> str:
        """The field that holds what is to be embedded."""
        return next(name for name in SOURCES if getattr(self, name) is not None)


class CohereEmbeddings(Schema):
    """The vectors by type, each list in the order of the inputs."""

    float_: list[list[float]] | None = Field(default=None, alias="float")
    base64: list[str] | None = Field(default=None, description="Little-endian float32.")
    int8: list[list[int]] | None = None
    uint8: list[list[int]] | None = None
    binary: list[list[int]] | None = Field(default=None, description="A bit a dimension, in signed bytes.")
    ubinary: list[list[int]] | None = Field(default=None, description="A bit a dimension, in unsigned bytes.")


class CohereUnits(CohereTokens):
    """What was consumed; nobody is billed."""

    images: int | None = None


class CohereEmbedMeta(CohereMeta):
    """What Cohere's clients read beside the vectors."""

    billed_units: CohereUnits


class CohereEmbedReply(Schema):
    """The vectors, by type or, on `/v1/embed` without `embedding_types`, as plain lists of numbers."""

    id: str = Field(description="The request's id.")
    response_type: Literal["embeddings_floats", "embeddings_by_type"]
    embeddings: list[list[float]] | CohereEmbeddings
    texts: list[str] = Field(description="Those of the request.")
    meta: CohereEmbedMeta
