"""The OpenAPI document: FastAPI's paths over our own schemas. Importing this module alone loads FastAPI."""

from __future__ import annotations

from collections.abc import Iterable
from inspect import getdoc
from typing import Any, Final

from fastapi import APIRouter
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from sie_core import __version__
from sie_core.api.endpoint import Endpoint
from sie_core.api.http.model_id import ModelId
from sie_core.api.openapi.purposes import tags

_ABOUT: Final = """\
Bodies are JSON or msgpack (`application/msgpack`, arrays in msgpack-numpy's form). An explicit `Accept` decides the
format of the answer; without one it is that of the request. Every error is JSON: `{"error": {"code", "message", …}}`.
"""


def build_openapi(endpoints: Iterable[Endpoint]) -> dict[str, Any]:
    """Build the document of `endpoints`."""
    described = [each for each in endpoints if each.described is not None]
    router = APIRouter()
    for each in described:
        said = {"name": getattr(each.handler, "__name__", None), "description": getdoc(each.handler)}
        methods = [name for name in each.methods if name != "HEAD"]
        call = _of_model if "{model" in each.path else _of_none
        router.add_api_route(each.path, call, methods=methods, **{**said, **(each.described or {})})
    document = get_openapi(title="SIE", version=__version__, description=_ABOUT, tags=tags(), routes=router.routes)
    schemas = sorted({schema for each in described for schema in each.schemas}, key=lambda schema: schema.__name__)
    _, definitions = models_json_schema(
        [(schema, "validation") for schema in schemas], ref_template="#/components/schemas/{model}"
    )
    document.setdefault("components", {}).setdefault("schemas", {}).update(definitions["$defs"])
    return document


def _of_model(model: ModelId) -> None:
    """Stand for a handler whose path names a model."""


def _of_none() -> None:
    """Stand for a handler whose path names none."""
