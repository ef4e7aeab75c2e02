"""The bodies of the routes that Ollama has."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, WithJsonSchema

from sie_core.api.fields.body import DialectBody
from sie_core.api.http.limits import MAX_EMBEDDING_INPUTS
from sie_core.api.http.model_id import ModelId
from sie_core.api.schema import Schema

Texts = Annotated[
    Any,
    WithJsonSchema(
        {
            "description": "A text or a list of texts.",
            "anyOf": [
                {"type": "string"},
                {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": MAX_EMBEDDING_INPUTS},
            ],
        }
    ),
]
_OPTIONS: Any = Field(
    default=None, description="Ignored: they are of models that generate; how much a model reads, its config says."
)
_KEEP_ALIVE: Any = Field(default=None, description="Ignored: a model stays loaded until its memory is needed.")


class OllamaEmbedBody(DialectBody):
    """A request for vectors. A field that is null counts as absent."""

    model: ModelId
    input: Texts
    truncate: bool | None = Field(
        default=None, description="Whether the end of a text beyond the model's length is cut, or else refused; "
        "absent: cut.",
    )  # fmt: skip
    dimensions: int | None = Field(default=None, ge=1, description="A Matryoshka size the model declares.")
    options: dict[str, Any] | None = _OPTIONS
    keep_alive: str | int | float | None = _KEEP_ALIVE


class OllamaEmbedReply(Schema):
    """A vector of unit length for each text, in the order of the texts; durations in nanoseconds."""

    model: str
    embeddings: list[list[float]]
    total_duration: int
    load_duration: int = Field(examples=[0], description="Always 0: the wait for a load is not told apart.")
    prompt_eval_count: int = Field(description="Tokens, counted by the model's own tokenizer after truncation.")


class OllamaEmbeddingsBody(DialectBody):
    """A request for the vector of one text, as Ollama had it first. A field that is null counts as absent."""

    model: ModelId
    prompt: str
    options: dict[str, Any] | None = _OPTIONS
    keep_alive: str | int | float | None = _KEEP_ALIVE


class OllamaEmbeddingsReply(Schema):
    """The vector, of the length that the model gives it."""

    embedding: list[float]


class OllamaModel(Schema):
    """A model whose weights are here."""

    name: str
    model: str = Field(description="As `name`.")
    modified_at: str = Field(description="When the server started.")
    size: int = Field(description="Bytes in memory; 0 where it is not loaded.")
    digest: str = Field(description="The revision of its weights; empty where it is not known.")
    details: dict[str, Any]


class OllamaModels(Schema):
    """The models that need nothing fetched."""

    models: list[OllamaModel]


class OllamaVersion(Schema):
    """The version of this server."""

    version: str
