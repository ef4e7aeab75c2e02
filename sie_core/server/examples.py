"""Commands for a first request to a model that is here."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable
from typing import Any

from sie_core.contracts import ModelInfo
from sie_core.serving.announcement import Announcement

MOST_TOLD = 3
"""Models that are mentioned."""


def announcement(url: str, known: Iterable[ModelInfo], default: str, *, needs_token: bool) -> Announcement:
    """Describe the models served at a URL.

    Args:
        url: The server's URL.
        known: Models, in any order; models that need a fetch first are left out.
        default: The model that comes first among those that are not loaded.
        needs_token: Whether clients need a token.
    """
    here = sorted(
        (model for model in known if model.available and model.last_error is None),
        key=lambda model: (model.state != "loaded", model.id != default),
    )
    # Where models are loaded, the example is of one of them, or there is none.
    asked = [model for model in here if model.state == "loaded"] or here
    commands = (_command(url, model, needs_token) for model in asked)
    return Announcement(
        url,
        models=tuple(model.id for model in here[:MOST_TOLD]),
        example=next((command for command in commands if command is not None), None),
        docs=f"{url}/docs",
    )


def _command(url: str, model: ModelInfo, needs_token: bool) -> str | None:
    """Write a call of a route that waits for a load; None if no such route serves this model."""
    if (call := _call(model)) is None:
        return None
    path, body = call
    token = ' -H "Authorization: Bearer $SIE_API_KEY"' if needs_token else ""
    # In ASCII: a shell may encode the rest of an id differently from the server.
    return (
        f"curl {url}{path} -H 'Content-Type: application/json'{token} \\\n"
        f"  -d {shlex.quote(json.dumps({'model': model.id, **body}))}"
    )


def _call(model: ModelInfo) -> tuple[str, dict[str, Any]] | None:
    if "text" not in model.inputs:
        return None
    if "dense" in model.outputs:
        return "/v1/embeddings", {"input": "a red fox"}
    if "score" in model.operations:
        return "/v1/rerank", {"query": "a red fox", "documents": ["a green house", "foxes are red"]}
    return None
