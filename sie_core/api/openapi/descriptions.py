"""Makes the rows of routes that no model answers, with what OpenAPI says of them; describes every route's errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic import BaseModel
from sie_sdk.errors import ERRORS
from starlette.responses import Response

from sie_core.api.body.negotiation import JSON_TYPE
from sie_core.api.endpoint import Endpoint, Handler
from sie_core.api.http.envelopes import ENVELOPES, Dialect
from sie_core.api.openapi.error_schema import (
    CohereErrorReply,
    ErrorReply,
    OllamaErrorReply,
    OpenAIErrorReply,
    TeiErrorReply,
)
from sie_core.contracts import InferenceError

ERROR_SCHEMAS: Final[dict[Dialect, type[BaseModel]]] = {
    "native": ErrorReply,
    "configs": ErrorReply,
    "openai": OpenAIErrorReply,
    "cohere": CohereErrorReply,
    "ollama": OllamaErrorReply,
    "tei": TeiErrorReply,
}


def lookup(
    path: str,
    handler: Handler,
    reply: type[BaseModel],
    *statuses: int,
    tag: str,
    dialect: Dialect = "native",
    head: bool = False,
    parameters: Sequence[Mapping[str, Any]] = (),
    is_page: bool = False,
) -> Endpoint:
    """Make a route that answers JSON to a request without a body, or a page to browsers where it `is_page`."""
    content: dict[str, Any] = {JSON_TYPE: {"schema": reference(reply)}}
    page = {"text/html": {"schema": {"type": "string"}}} if is_page else {}
    success = {"description": first_line(reply), "content": content | page}
    schema = ERROR_SCHEMAS[dialect]
    said = {
        "tags": [tag],
        "response_class": Response,
        "responses": {200: success, **error_replies(*statuses, dialect=dialect, schema=schema)},
        "openapi_extra": {"parameters": list(parameters)} if parameters else None,
    }
    return Endpoint(path, handler, dialect, ("GET", "HEAD") if head else ("GET",), False, said, (reply, schema))


def probe(
    path: str, handler: Handler, what: str, *, tag: str = "status", can_fail: bool = True, dialect: Dialect = "native"
) -> Endpoint:
    """Make a route that answers one line of text, also for a failure where it `can_fail`."""
    text = {"content": {"text/plain": {"schema": {"type": "string"}}}}
    responses: dict[int | str, Any] = {200: {"description": what, **text}}
    if can_fail:
        responses[503] = {"description": "What is wrong, in one line.", **text}
    schema = ERROR_SCHEMAS[dialect]
    responses |= error_replies(dialect=dialect, schema=schema)
    said = {"tags": [tag], "response_class": Response, "responses": responses}
    return Endpoint(path, handler, dialect, ("GET", "HEAD"), False, said, (schema,))


def reference(model: type[BaseModel]) -> dict[str, str]:
    """Refer to a schema among the components."""
    return {"$ref": f"#/components/schemas/{model.__name__}"}


def error_replies(*statuses: int, dialect: Dialect, schema: type[BaseModel]) -> dict[int | str, Any]:
    """Describe the replies of `statuses`, and of any other failure as `default`."""
    content = {JSON_TYPE: {"schema": reference(schema)}}
    described: dict[int | str, Any] = {}
    for status in statuses:
        rows = [row for row in ERRORS.values() if ENVELOPES[dialect].status(InferenceError(row.code, "")) == status]
        response: dict[str, Any] = {
            "description": " ".join(f"`{row.code}`: {row.meaning}" for row in rows),
            "content": content,
        }
        if any(row.retry_after_s is not None for row in rows):
            seconds = {"type": "number" if dialect == "native" else "integer"}
            response["headers"] = {"Retry-After": {"description": "Seconds.", "schema": seconds}}
        described[status] = response
    described["default"] = {"description": "Any other failure.", "content": content}
    return described


def first_line(model: type[BaseModel]) -> str:
    """Return the first line of what a schema says of itself."""
    return (model.__doc__ or model.__name__).splitlines()[0]
