"""The fields of `/v1/embeddings` that Jina's API adds to OpenAI's; those that cannot be served are refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field, WithJsonSchema

from sie_core.api.body.embedding_types import EmbeddingType
from sie_core.api.fields.lengths import PromptLength, length_demands
from sie_core.api.native.spellings import PromptChoice, prompt_named
from sie_core.contracts import InvalidInput, Truncate

_TRUNCATE: Final[Mapping[bool | str, Truncate]] = {
    True: "end",
    False: "error",
    "END": "end",
    "START": "start",
    "NONE": "error",
}
"""Jina's and NVIDIA's words for where a text is cut."""


def _one(value: Any) -> Any:
    """Unpack a list of one entry."""
    if isinstance(value, list):
        if len(value) != 1:
            raise ValueError(f"holds {len(value)} types, and a reply has one; send a request for each")
        return value[0]
    return value


def _off(value: Any) -> Any:
    if value not in (None, False):
        raise ValueError("cannot be done here; leave it out")
    return None


def _kept_end(value: Any) -> Any:
    """Convert other words for where a text is cut."""
    return _TRUNCATE.get(value, value) if isinstance(value, bool | str) else value


Off = Annotated[None, BeforeValidator(_off), WithJsonSchema({"enum": [None, False]})]
OneType = Annotated[
    EmbeddingType,
    BeforeValidator(_one),
    WithJsonSchema({"enum": ["float", "base64", "int8", "uint8", "binary", "ubinary"]}),
]
Cut = Annotated[Truncate, BeforeValidator(_kept_end), WithJsonSchema({"enum": ["end", "start", "error", *_TRUNCATE]})]


class JinaFields(PromptLength):
    """The fields of a request for embeddings that Jina, Mistral and Voyage have and OpenAI has not."""

    task: str | None = Field(
        default=None,
        min_length=1,
        description="Jina's: `retrieval.query`, `retrieval.passage` and the other names of `input_type` do what that "
        "does; any other is a prompt of the weights, by its name.",
    )
    embedding_type: OneType | None = Field(
        default=None,
        description="Jina's: in place of `encoding_format`; `binary` are signed bytes, `ubinary` unsigned.",
    )
    output_dtype: OneType | None = Field(
        default=None, description="Mistral's and Voyage's name of `embedding_type`; as base64 where that is asked for."
    )
    output_dimension: int | None = Field(default=None, ge=1, description="Mistral's and Voyage's name of `dimensions`.")
    truncation: bool | None = Field(default=None, description="Voyage's: true is `end` of `truncate`, false `error`.")
    normalized: bool | None = Field(default=None, description="Jina's: whether vectors get unit length, or none.")
    late_chunking: Off = Field(default=None, description="Jina's; true is refused.")
    return_multivector: Off = Field(default=None, description="Jina's; true is refused.")


def prompt_choice(task: str | None, input_type: str | None) -> PromptChoice:
    """Find the prompt that a task and `input_type` agree on.

    Raises:
        InvalidInput: They contradict each other.
    """
    if task is None and input_type is None:
        return PromptChoice()
    by_task, by_type = prompt_named(task), prompt_named(input_type)
    if by_task.input_type and by_type.input_type and by_task.input_type != by_type.input_type:
        raise InvalidInput(f"`task` says {task!r} and `input_type` {input_type!r}: give one of them.", param="task")
    wishes = {**by_type.wishes, **by_task.wishes}
    return PromptChoice(by_task.input_type or by_type.input_type, wishes, by_task.demands)


def demands(body: JinaFields) -> dict[str, Any]:
    """Return the options that are refused where the model does not have them."""
    return {**length_demands(body), **({"normalize": False} if body.normalized is False else {})}
