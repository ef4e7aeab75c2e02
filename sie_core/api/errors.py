"""Errors as replies: one JSON body for every failure, in our envelope or in OpenAI's.

Codes, statuses and pauses come from the error table; it must not know why anything failed.
"""

from __future__ import annotations

import math
from typing import Any, Final

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from sie_core.api.negotiation import JSON_TYPE
from sie_core.contracts import InferenceError

OPENAI_PATHS: Final = frozenset({"/v1/embeddings"})
"""Paths whose clients read OpenAI's envelope."""
_OPENAI_CODES: Final = {
    "INVALID_INPUT": "invalid_request",
    "MODEL_NOT_FOUND": "model_not_found",
    "INFERENCE_ERROR": "inference_error",
}
"""Codes that OpenAI's clients know by another name; every other code keeps the table's."""
_HTTP_CODES: Final = {404: "NOT_FOUND", 405: "METHOD_NOT_ALLOWED"}


def error_body(error: InferenceError) -> dict[str, Any]:
    """Describe `error` as `{"error": {"code", "message", "param"?, …}}`."""
    fields: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.param is not None:
        fields["param"] = error.param
    return {"error": error.details | fields}


def openai_error_body(error: InferenceError) -> dict[str, Any]:
    """Describe `error` as `{"error": {"message", "type", "param", "code", …}}`."""
    fields = {
        "message": error.message,
        "type": "invalid_request_error" if error.spec.status < 500 else "server_error",
        "param": error.param,
        "code": _OPENAI_CODES.get(error.code, error.code),
    }
    return {"error": error.details | fields}


def renamed(error: InferenceError, param: str) -> InferenceError:
    """Make the same error about a field under the name the client gave it."""
    message = error.message.replace(error.param, param) if error.param else error.message
    return InferenceError(error.code, message, param=param, retry_after_s=error.retry_after_s, details=error.details)


def error_response(error: InferenceError, path: str, headers: dict[str, str] | None = None) -> Response:
    """Render `error` for a client of `path`, with `Retry-After` in whole seconds where it is worth a retry."""
    headers = dict(headers or {})
    if error.retry_after_s is not None:
        headers["Retry-After"] = str(math.ceil(error.retry_after_s))
    body = openai_error_body(error) if path in OPENAI_PATHS else error_body(error)
    return Response(orjson.dumps(body, default=str), error.spec.status, headers, JSON_TYPE)


async def on_inference_error(request: Request, error: Exception) -> Response:
    """Answer an error of the table."""
    assert isinstance(error, InferenceError)
    return error_response(error, request.url.path)


async def on_http_error(request: Request, error: Exception) -> Response:
    """Answer what the router itself refuses: an unknown path or method."""
    assert isinstance(error, HTTPException)
    code = _HTTP_CODES.get(error.status_code, "INTERNAL_ERROR")
    asked = f"{request.method} {request.url.path[:200]}"
    allowed = (error.headers or {}).get("Allow")
    remedy = f"it takes {allowed}" if allowed else "GET /docs lists the routes"
    own = InferenceError(code, f"There is no route {asked}; {remedy}.")
    return error_response(own, request.url.path, dict(error.headers or {}))
