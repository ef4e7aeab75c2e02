"""Makes routes with what OpenAPI says of them: bodies, headers, errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, get_args

from pydantic import BaseModel
from sie_sdk.errors import ERRORS
from starlette.responses import Response

from sie_core.api.body.negotiation import JSON_TYPE, MSGPACK_TYPE
from sie_core.api.endpoint import Endpoint, Handler
from sie_core.api.http.envelopes import ACCEPTED, ENVELOPES, Dialect
from sie_core.api.openapi.error_schema import (
    CohereErrorReply,
    ErrorReply,
    OllamaErrorReply,
    OpenAIErrorReply,
    TeiErrorReply,
)
from sie_core.api.openapi.examples import Example, described
from sie_core.contracts import InferenceError, Priority

_REQUEST_HEADERS: Final = (
    ("X-SIE-Timeout-Ms", {"type": "number", "exclusiveMinimum": 0}, "Answer 504 when so many milliseconds passed."),
    ("Prefer", {"type": "string", "pattern": r"^wait=[0-9]{1,6}$"}, "`wait=N`: seconds to wait for a model to load."),
    (
        "X-SIE-Priority",
        {"type": "string", "enum": list(get_args(Priority))},
        "A larger or a smaller share of the device where others wait; the same share as theirs without it.",
    ),
    ("X-SIE-MACHINE-PROFILE", {"type": "string"}, "The machine profile whose workers alone answer; or `pool/profile`."),
    ("X-SIE-Pool", {"type": "string"}, "The leased capacity that it is for."),
    ("X-SIE-Remote", {"type": "string", "enum": ["forbid"]}, "Only ever answer from this installation."),
)
_REPLY_HEADERS: Final = {
    "X-SIE-Request-ID": "Names the request in the server's log.",
    "X-SIE-Server-Version": "Version of the server.",
    "X-SIE-Served-By": "Always `local` here.",
    "X-SIE-Truncated": "How many items were cut to the model's length; absent where none was.",
    "X-SIE-Precision": "What the model computed in: `float32`, `bfloat16`, `float16`; not the dtype of the reply.",
    "X-SIE-Runner": "What ran the model; absent where its family names nothing.",
    "X-SIE-Ignored-Options": "Options that only other operations or families read, and `input_type` where the model "
    "has prompts and none for it; absent where there were none.",
    "X-Queue-Time": "Milliseconds waited.",
    "X-Queue-Wait-Time": "Of X-Queue-Time, milliseconds between a gateway and its worker; absent without a gateway.",
    "X-Tokenization-Time": "Milliseconds of preparation.",
    "X-Inference-Time": "Milliseconds on the device.",
    "X-Postprocessing-Time": "Milliseconds of postprocessing; absent where there was none.",
    "X-Total-Time": "Milliseconds altogether.",
}

_STATUSES: Final = (400, 404, 406, 413, 415, 500, 502, 503, 504)
_INFERENCE_ERRORS: Final[dict[Dialect, tuple[int, ...]]] = {
    "native": _STATUSES,
    "openai": _STATUSES,
    "cohere": _STATUSES,
    "ollama": _STATUSES,
    "tei": (404, 406, 413, 415, 422, 424, 429, 500, 503, 504),
}
"""The statuses of a route beside 200."""
ERROR_SCHEMAS: Final[dict[Dialect, type[BaseModel]]] = {
    "native": ErrorReply,
    "configs": ErrorReply,
    "openai": OpenAIErrorReply,
    "cohere": CohereErrorReply,
    "ollama": OllamaErrorReply,
    "tei": TeiErrorReply,
}


def inference(
    path: str,
    handler: Handler,
    body: type[BaseModel],
    reply: type[BaseModel],
    *,
    dialect: Dialect,
    tag: str,
    name: str,
    about: str,
    msgpack: bool,
    error: type[BaseModel] | None = None,
    examples: Sequence[Example] = (),
) -> Endpoint:
    """Make a route that models answer.

    Args:
        path: Its template.
        handler: Answers.
        body: The schema of the request.
        reply: The schema of a 200.
        dialect: Decides the envelope and the statuses of errors.
        tag: One of `purposes.PURPOSES`.
        name: What the document calls it.
        about: What it does.
        msgpack: Whether the route speaks msgpack beside JSON.
        error: The schema of an error, where it is not the envelope's alone.
        examples: Bodies in JSON.
    """
    media_types = (JSON_TYPE, MSGPACK_TYPE) if msgpack else (JSON_TYPE,)
    success = {
        "description": _first_line(reply),
        "content": {media_type: {"schema": reference(reply)} for media_type in media_types},
        "headers": {
            header: {"description": says, "schema": {"type": "string"}} for header, says in _REPLY_HEADERS.items()
        },
    }
    content: dict[str, Any] = {media_type: {"schema": reference(body)} for media_type in media_types}
    content[JSON_TYPE]["examples"] = described(examples)
    accepted: dict[int | str, Any] = {ACCEPTED: _accepted(dialect)} if ENVELOPES[dialect].accepts else {}
    schema = error or ERROR_SCHEMAS[dialect]
    parameters = [
        {"name": header, "in": "header", "required": False, "schema": values, "description": says}
        for header, values, says in _REQUEST_HEADERS
    ]
    said = {
        "name": name,
        "description": about,
        "tags": [tag],
        "response_class": Response,
        "responses": {200: success, **accepted, **_errors(*_INFERENCE_ERRORS[dialect], dialect=dialect, schema=schema)},
        "openapi_extra": {
            "requestBody": {"required": True, "content": content},
            "parameters": parameters,
        },
    }
    return Endpoint(path, handler, dialect, ("POST",), True, said, (body, reply, schema))


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
    success = {"description": _first_line(reply), "content": content | page}
    schema = ERROR_SCHEMAS[dialect]
    said = {
        "tags": [tag],
        "response_class": Response,
        "responses": {200: success, **_errors(*statuses, dialect=dialect, schema=schema)},
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
    responses |= _errors(dialect=dialect, schema=schema)
    said = {"tags": [tag], "response_class": Response, "responses": responses}
    return Endpoint(path, handler, dialect, ("GET", "HEAD"), False, said, (schema,))


def reference(model: type[BaseModel]) -> dict[str, str]:
    """Refer to a schema among the components."""
    return {"$ref": f"#/components/schemas/{model.__name__}"}


def _errors(*statuses: int, dialect: Dialect, schema: type[BaseModel]) -> dict[int | str, Any]:
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


def _accepted(dialect: Dialect) -> dict[str, Any]:
    """Describe the reply of a cluster that has no worker yet."""
    row = ERRORS["PROVISIONING"]
    others = "Clients whose `X-SIE-SDK-Version` begins with `0.`, or that send `Prefer: wait`, get 503."
    return {
        "description": f"`{row.code}`: {row.meaning} {others}",
        "content": {JSON_TYPE: {"schema": reference(ERROR_SCHEMAS[dialect])}},
        "headers": {"Retry-After": {"description": "Seconds.", "schema": {"type": "number"}}},
    }


def _first_line(model: type[BaseModel]) -> str:
    return (model.__doc__ or model.__name__).splitlines()[0]
