"""The OpenAPI document: FastAPI's paths over our own schemas."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from sie_core import __version__
from sie_core.api.endpoint import Endpoint
from sie_core.api.openapi.purposes import tags

_ABOUT: Final = """\
Bodies are JSON or msgpack (`application/msgpack`, arrays in msgpack-numpy's form). An explicit `Accept` decides the
format of the answer; without one it is that of the request. Every error is JSON: `{"error": {"code", "message", …}}`.
"""


def build_openapi(app: FastAPI, endpoints: Iterable[Endpoint]) -> dict[str, Any]:
    """Build the document of `app`, which has `endpoints`, once."""
    if app.openapi_schema is None:
        document = get_openapi(title="SIE", version=__version__, description=_ABOUT, tags=tags(), routes=app.routes)
        schemas = sorted({schema for each in endpoints for schema in each.schemas}, key=lambda schema: schema.__name__)
        _, definitions = models_json_schema(
            [(schema, "validation") for schema in schemas], ref_template="#/components/schemas/{model}"
        )
        document.setdefault("components", {}).setdefault("schemas", {}).update(definitions["$defs"])
        app.openapi_schema = document
    return app.openapi_schema
