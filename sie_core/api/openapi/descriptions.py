"""Describes routes for OpenAPI, as arguments of FastAPI's decorators: bodies, headers, errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, get_args

from pydantic import BaseModel
from sie_sdk.errors import ERRORS
from starlette.responses import Response

from sie_core.api.body.negotiation import JSON_TYPE, MSGPACK_TYPE
from sie_core.api.http.envelopes import ACCEPTED, ENVELOPES, EnvelopeName
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
"""HTTP statuses that the errors of an inference route may have."""
_INFERENCE_ERRORS: Final[dict[EnvelopeName, tuple[int, ...]]] = {
    "native": _STATUSES,
    "openai": _STATUSES,
    "cohere": _STATUSES,
    "ollama": _STATUSES,
    "tei": (404, 406, 413, 415, 422, 424, 429, 500, 503, 504),
}
"""The statuses of a route beside 200."""
_ERROR_SCHEMAS: Final[dict[EnvelopeName, type[BaseModel]]] = {
    "native": ErrorReply,
    "configs": ErrorReply,
    "openai": OpenAIErrorReply,
    "cohere": CohereErrorReply,
    "ollama": OllamaErrorReply,
    "tei": TeiErrorReply,
}


def inference(
    body: type[BaseModel],
    reply: type[BaseModel],
    *,
    msgpack: bool,
    errors: EnvelopeName = "native",
    error: type[BaseModel] | None = None,
    examples: Sequence[Example] = (),
) -> dict[str, Any]:
    """Make the arguments of an inference route's decorator.

    Args:
        body: The schema of the request.
        reply: The schema of a 200.
        msgpack: Whether the route speaks msgpack beside JSON.
        errors: The envelope its errors come in.
        error: The schema of an error, where it is not the envelope's alone.
        examples: Bodies in JSON.
    """
    media_types = (JSON_TYPE, MSGPACK_TYPE) if msgpack else (JSON_TYPE,)
    success = {
        "description": _first_line(reply),
        "content": {media_type: {"schema": reference(reply)} for media_type in media_types},
        "headers": {
            name: {"description": about, "schema": {"type": "string"}} for name, about in _REPLY_HEADERS.items()
        },
    }
    content: dict[str, Any] = {media_type: {"schema": reference(body)} for media_type in media_types}
    content[JSON_TYPE]["examples"] = described(examples)
    accepted = {ACCEPTED: _accepted(errors)} if ENVELOPES[errors].accepts else {}
    return {
        "response_class": Response,
        "responses": {200: success, **accepted, **_errors(*_INFERENCE_ERRORS[errors], envelope=errors, schema=error)},
        "openapi_extra": {
            "requestBody": {"required": True, "content": content},
            "parameters": [
                {"name": name, "in": "header", "required": False, "schema": schema, "description": about}
                for name, schema, about in _REQUEST_HEADERS
            ],
        },
    }


def lookup(reply: type[BaseModel], *statuses: int, errors: EnvelopeName = "native") -> dict[str, Any]:
    """Make the arguments of a route that answers JSON to a request without a body."""
    success = {"description": _first_line(reply), "content": {JSON_TYPE: {"schema": reference(reply)}}}
    return {"response_class": Response, "responses": {200: success, **_errors(*statuses, envelope=errors)}}


def probe(what: str, *, can_fail: bool = True, errors: EnvelopeName = "native") -> dict[str, Any]:
    """Make the arguments of a route that answers one line of text, also for a failure where it `can_fail`."""
    text = {"content": {"text/plain": {"schema": {"type": "string"}}}}
    responses: dict[int | str, Any] = {200: {"description": what, **text}}
    if can_fail:
        responses[503] = {"description": "What is wrong, in one line.", **text}
    return {"response_class": Response, "responses": responses | _errors(envelope=errors)}


def page_or_json(reply: type[BaseModel], errors: EnvelopeName = "native") -> dict[str, Any]:
    """Make the arguments of a route that answers a page to browsers, and JSON to programs."""
    described = lookup(reply, errors=errors)
    described["responses"][200]["content"]["text/html"] = {"schema": {"type": "string"}}
    return described


def reference(model: type[BaseModel]) -> dict[str, str]:
    """Refer to a schema among the components."""
    return {"$ref": f"#/components/schemas/{model.__name__}"}


def _errors(
    *statuses: int, envelope: EnvelopeName = "native", schema: type[BaseModel] | None = None
) -> dict[int | str, Any]:
    """Describe the replies of `statuses`, and of any other failure as `default`."""
    content = {JSON_TYPE: {"schema": reference(schema or _ERROR_SCHEMAS[envelope])}}
    described: dict[int | str, Any] = {}
    for status in statuses:
        rows = [row for row in ERRORS.values() if ENVELOPES[envelope].status(InferenceError(row.code, "")) == status]
        response: dict[str, Any] = {
            "description": " ".join(f"`{row.code}`: {row.meaning}" for row in rows),
            "content": content,
        }
        if any(row.retry_after_s is not None for row in rows):
            seconds = {"type": "number" if envelope == "native" else "integer"}
            response["headers"] = {"Retry-After": {"description": "Seconds.", "schema": seconds}}
        described[status] = response
    described["default"] = {"description": "Any other failure.", "content": content}
    return described


def _accepted(envelope: EnvelopeName) -> dict[str, Any]:
    """Describe the reply of a cluster that has no worker yet."""
    row = ERRORS["PROVISIONING"]
    others = "Clients whose `X-SIE-SDK-Version` begins with `0.`, or that send `Prefer: wait`, get 503."
    return {
        "description": f"`{row.code}`: {row.meaning} {others}",
        "content": {JSON_TYPE: {"schema": reference(_ERROR_SCHEMAS[envelope])}},
        "headers": {"Retry-After": {"description": "Seconds.", "schema": {"type": "number"}}},
    }


def _first_line(model: type[BaseModel]) -> str:
    return (model.__doc__ or model.__name__).splitlines()[0]
