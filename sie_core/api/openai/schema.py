"""The bodies of `POST /v1/embeddings`, as OpenAI defines them, with Jina's fields and two of ours.

Unknown fields are ignored, as OpenAI's clients expect.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, WithJsonSchema

from sie_core.api.http.limits import MAX_EMBEDDING_INPUTS
from sie_core.api.http.model_id import ModelId
from sie_core.api.openai.jina import Cut, JinaFields
from sie_core.api.schema import Schema
from sie_core.contracts import ROLES

_MAPS = [
    {"type": "object", "properties": {name: {"type": "string"}}, "required": [name], "additionalProperties": False}
    for name in ("text", "image")
]
_INPUTS = {"type": "array", "items": {"anyOf": [{"type": "string"}, *_MAPS]}}
_TOKEN_IDS = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}
_COUNT = {"minItems": 1, "maxItems": MAX_EMBEDDING_INPUTS}


def _known_role(value: str) -> str:
    if value not in ROLES:
        raise ValueError(f"must be one of {', '.join(ROLES)}; a prompt of another name is a `task`")
    return value


RoleName = Annotated[str, AfterValidator(_known_role), WithJsonSchema({"enum": list(ROLES)})]
Input = Annotated[
    Any,
    WithJsonSchema(
        {
            "description": "A text or a list of texts and, for models that see, pictures: base64 or a `data:` URI. "
            "Token ids only where the model's config says so.",
            "anyOf": [
                {"type": "string"},
                {**_INPUTS, **_COUNT},
                _TOKEN_IDS,
                {"type": "array", "items": _TOKEN_IDS, **_COUNT},
            ],
        }
    ),
]


class EmbeddingsBody(JinaFields):
    """A request for embeddings. A field that is null counts as absent."""

    model: ModelId | None = Field(default=None, description="Absent: `SIE_DEFAULT_MODEL`.")
    input: Input
    encoding_format: Literal["float", "base64"] | None = Field(
        default=None, description="`base64`: little-endian float32."
    )
    dimensions: int | None = Field(default=None, ge=1, description="A Matryoshka size the model declares.")
    input_type: RoleName | None = Field(
        default=None, description="Ours: selects the model's query or document prompt, by any name that models have."
    )
    truncate: Cut | None = Field(
        default=None,
        description="Ours: where a text beyond the model's length is cut (`end` by default), or `error`. Jina's true "
        "and false are `end` and `error`; NVIDIA's `NONE`, `START` and `END` are `error`, `start` and `end`.",
    )


class Embedding(Schema):
    """One input's vector."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str = Field(description="Numbers, or the base64 text of little-endian float32.")


class EmbeddingsUsage(Schema):
    """Tokens, counted by the model's own tokenizer after truncation."""

    prompt_tokens: int
    total_tokens: int
    sie_token_source: Literal["worker"]


class EmbeddingsReply(Schema):
    """The vectors in the order of the inputs."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: EmbeddingsUsage
