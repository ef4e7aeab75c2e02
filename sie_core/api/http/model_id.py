"""Checks that a model id is well formed."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import WithJsonSchema

from sie_core.api.http.limits import MAX_MODEL_ID_CHARS
from sie_core.contracts import InvalidInput

_SCHEMA: Final = {
    "type": "string",
    "minLength": 1,
    "maxLength": MAX_MODEL_ID_CHARS,
    "pattern": r"^(?!/)(?!.*\.\.)[^\\\u0000-\u001f\u007f]+$",
    "examples": ["org/name", "org/name:profile"],
}
ModelId = Annotated[str, WithJsonSchema(_SCHEMA)]
"""A model's id as OpenAPI describes it; `check_model_id` checks it."""


class MalformedModelIdError(InvalidInput):
    """A text that cannot be the id of any model."""


def check_model_id(model: str) -> str:
    """Return `model` if it can be an id: no path out of a folder, no unprintable characters, not too long.

    Raises:
        MalformedModelIdError: Names `model`.
    """
    problem = None
    if not model:
        problem = "is empty"
    elif len(model) > MAX_MODEL_ID_CHARS:
        problem = f"has {len(model)} characters; {MAX_MODEL_ID_CHARS} are allowed"
    elif ".." in model or "\\" in model or model.startswith("/"):
        problem = "must not start with `/` or hold `..` or a backslash"
    elif not model.isprintable():
        problem = "holds unprintable characters"
    if problem:
        raise MalformedModelIdError(f"The model id {model[:100]!r} {problem}.", param="model")
    return model
