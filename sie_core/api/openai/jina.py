"""The fields of `/v1/embeddings` that Jina's API adds to OpenAI's; those that cannot be served are refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, Field, WithJsonSchema

from sie_core.api.body.embedding_types import EmbeddingType
from sie_core.contracts import InputType, InvalidInput, Truncate

_ROLES: Final[Mapping[str | None, InputType]] = {
    "retrieval.query": "query",
    "query": "query",
    "retrieval.passage": "document",
    "passage": "document",
    "document": "document",
}
"""Tasks that every model has; any other is a prompt of the weights."""
_OWN_NAMES: Final = ("retrieval.query", "retrieval.passage")
"""Tasks that are also names of prompts in some weights."""
_TRUNCATE: Final[Mapping[bool, Truncate]] = {True: "end", False: "error"}


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
    """Convert Jina's true and false to where a text is cut."""
    return _TRUNCATE[value] if isinstance(value, bool) else value


Off = Annotated[None, BeforeValidator(_off), WithJsonSchema({"enum": [None, False]})]
OneType = Annotated[
    EmbeddingType,
    BeforeValidator(_one),
    WithJsonSchema({"enum": ["float", "base64", "int8", "uint8", "binary", "ubinary"]}),
]
Cut = Annotated[Truncate, BeforeValidator(_kept_end), WithJsonSchema({"enum": ["end", "start", "error", True, False]})]


class JinaFields(BaseModel):
    """The fields of a request for embeddings that Jina has and OpenAI has not."""

    task: str | None = Field(
        default=None,
        min_length=1,
        description="Jina's: `retrieval.query` and `retrieval.passage` do what `input_type` does; any other is a "
        "prompt of the weights, by its name.",
    )
    embedding_type: OneType | None = Field(
        default=None,
        description="Jina's: in place of `encoding_format`; `binary` are signed bytes, `ubinary` unsigned.",
    )
    normalized: bool | None = Field(default=None, description="Jina's: whether vectors get unit length, or none.")
    late_chunking: Off = Field(default=None, description="Jina's; true is refused.")
    return_multivector: Off = Field(default=None, description="Jina's; true is refused.")


def task_role(task: str | None, input_type: InputType | None) -> InputType | None:
    """Find the input type that a task and `input_type` agree on.

    Raises:
        InvalidInput: They contradict each other.
    """
    role = _ROLES.get(task)
    if role and input_type and role != input_type:
        raise InvalidInput(f"`task` says {task!r} and `input_type` {input_type!r}: give one of them.", param="task")
    return role or input_type


def wishes(body: JinaFields) -> dict[str, Any]:
    """Return the options that apply where the model has them."""
    return {"prompt_name": body.task} if body.task in _OWN_NAMES else {}


def demands(body: JinaFields) -> dict[str, Any]:
    """Return the options that are refused where the model does not have them."""
    asked: dict[str, Any] = {}
    if body.task is not None and body.task not in _ROLES:
        asked["prompt_name"] = body.task
    if body.normalized is False:
        asked["normalize"] = False
    return asked
