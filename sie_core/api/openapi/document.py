"""The OpenAPI document: FastAPI's paths over our own schemas."""

from __future__ import annotations

from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from sie_core import __version__
from sie_core.api.ollama.schema import OllamaModels, OllamaVersion
from sie_core.api.openapi.error_schema import (
    CohereErrorReply,
    ErrorReply,
    OllamaErrorReply,
    OpenAIErrorReply,
    TeiErrorReply,
)
from sie_core.api.openapi.purposes import tags
from sie_core.api.ops.health import HealthReply
from sie_core.api.ops.models_schema import MergedModel, ModelsReply
from sie_core.api.ops.plugins import PluginsReply
from sie_core.api.pages.routes import RootReply
from sie_core.api.routes import inference_routes
from sie_core.api.tei.lookups import TeiInfo

_LOOKUPS: Final[tuple[type[BaseModel], ...]] = (
    *(HealthReply, MergedModel, ModelsReply, PluginsReply),
    *(RootReply, TeiInfo, OllamaModels, OllamaVersion),
)
_ERRORS: Final[tuple[type[BaseModel], ...]] = (
    *(ErrorReply, OpenAIErrorReply, CohereErrorReply),
    *(TeiErrorReply, OllamaErrorReply),
)
_ABOUT: Final = """\
Bodies are JSON or msgpack (`application/msgpack`, arrays in msgpack-numpy's form). An explicit `Accept` decides the
format of the answer; without one it is that of the request. Every error is JSON: `{"error": {"code", "message", …}}`.
"""


def build_openapi(app: FastAPI) -> dict[str, Any]:
    """Build the document of `app`, once."""
    if app.openapi_schema is None:
        document = get_openapi(title="SIE", version=__version__, description=_ABOUT, tags=tags(), routes=app.routes)
        _, definitions = models_json_schema(
            [(schema, "validation") for schema in _schemas()], ref_template="#/components/schemas/{model}"
        )
        document.setdefault("components", {}).setdefault("schemas", {}).update(definitions["$defs"])
        app.openapi_schema = document
    return app.openapi_schema


def _schemas() -> list[type[BaseModel]]:
    """List every body that a route refers to."""
    inference = {
        schema
        for route in inference_routes()
        for schema in (route.body, route.reply, route.error)
        if schema is not None
    }
    return sorted({*inference, *_LOOKUPS, *_ERRORS}, key=lambda schema: schema.__name__)
