"""Which model ids can be asked for at all. It must not know which models there are."""

from __future__ import annotations

from sie_core.api.http.limits import MAX_MODEL_ID_CHARS
from sie_core.contracts import InvalidInput


def check_model_id(model: str) -> str:
    """Return `model` if it can be an id: no way out of a folder, nothing invisible, not too long.

    Raises:
        InvalidInput: Names `model`.
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
        raise InvalidInput(f"The model id {model[:100]!r} {problem}.", param="model")
    return model
