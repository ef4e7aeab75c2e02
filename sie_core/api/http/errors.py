"""Errors as replies: one JSON body for every failure, in the envelope that the clients of the path read.

It must not know why anything failed.
"""

from __future__ import annotations

import math
from typing import Final

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from sie_core.api.body.negotiation import JSON_TYPE
from sie_core.api.http.envelopes import ENVELOPES, envelope_name
from sie_core.contracts import InferenceError

_HTTP_CODES: Final = {404: "NOT_FOUND", 405: "METHOD_NOT_ALLOWED"}


def error_response(error: InferenceError, path: str, headers: dict[str, str] | None = None) -> Response:
    """Render `error` for a client of `path`, with `Retry-After` in whole seconds where it is worth a retry."""
    headers = dict(headers or {})
    if error.retry_after_s is not None:
        headers["Retry-After"] = str(math.ceil(error.retry_after_s))
    envelope = ENVELOPES[envelope_name(path)]
    return Response(
        orjson.dumps(envelope.body(error), default=str), envelope.status(error.code, error.param), headers, JSON_TYPE
    )


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
