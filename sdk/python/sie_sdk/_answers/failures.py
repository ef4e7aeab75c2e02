"""Reading an answer that is no result: what it says of itself, and the exception it becomes when nobody retries.

It decides nothing about retries and performs no I/O.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sie_sdk import wire
from sie_sdk._answers.headers import request_info, retry_after_s
from sie_sdk._calls.exchange import Response
from sie_sdk.errors import (
    InputTooLongError,
    LoraLoadingError,
    ModelLoadFailedError,
    ModelLoadingError,
    ProvisioningError,
    RateLimitError,
    RequestError,
    ResourceExhaustedError,
    ServerError,
    SIEError,
)
from sie_sdk.types import RequestInfo


@dataclass(frozen=True, slots=True)
class Failure:
    """What an answer other than a result says."""

    status: int
    code: str | None
    message: str
    param: str | None = None
    retry_after_s: float | None = None
    """The pause the server asks for; None where it asks for none."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """The error body's further fields."""
    body_code: str | None = None
    """The code in the body alone; `code` may come from the header."""
    request: RequestInfo | None = None


@dataclass(frozen=True, slots=True)
class CallFacts:
    """What an exception tells of the call it ended."""

    model: str | None = None
    gpu: str | None = None
    lora: str | None = None


def read_failure(response: Response, now: float) -> Failure:
    """Read an error answer of any shape servers of this protocol give: `error`, then `detail`, then the bare text.

    `now` is the wall clock in epoch seconds, for a `Retry-After` that is a date.
    """
    fields = _error_fields(response)
    body_code = _text(fields.get("code"))
    if body_code == "provisioning":
        body_code = "PROVISIONING"
    return Failure(
        status=response.status,
        code=_text(response.headers.get("x-sie-error-code")) or body_code,
        message=_text(fields.get("message")) or f"HTTP {response.status}",
        param=_text(fields.get("param")),
        retry_after_s=retry_after_s(response.headers.get("retry-after"), now),
        details=fields,
        body_code=body_code,
        request=request_info(response.headers, None),
    )


def to_exception(failure: Failure, call: CallFacts, retries: int = 0) -> SIEError:
    """Make the exception of `failure`; `retries` is how often the call was tried again."""
    message, pause = failure.message, failure.retry_after_s
    answer: dict[str, Any] = {
        "code": failure.code,
        "status_code": failure.status,
        "param": failure.param,
        "request": failure.request,
    }
    match failure:
        case Failure(status=202) | Failure(status=503, code="PROVISIONING"):
            return ProvisioningError(message, gpu=call.gpu, retry_after=pause)
        case Failure(status=503, code="MODEL_LOADING"):
            return ModelLoadingError(message, model=call.model)
        case Failure(status=503, code="LORA_LOADING"):
            return LoraLoadingError(message, lora=call.lora, model=call.model)
        case Failure(status=503, code="RESOURCE_EXHAUSTED"):
            return ResourceExhaustedError(message, model=call.model, retries=retries, retry_after=pause, **answer)
        # Only the server itself writes the body: a proxy's header alone does not make a load failure. 424 is of `/tei`.
        case Failure(status=502 | 424, body_code="MODEL_LOAD_FAILED"):
            return ModelLoadFailedError(message, retry_after=pause, **_load_failure(failure.details), **answer)
        case Failure(status=429):
            return RateLimitError(message, retry_after=pause, **answer)
        case Failure(status=400, code="INPUT_TOO_LONG"):
            return InputTooLongError(message, model=call.model, **answer)
    if failure.status >= 500:
        return ServerError(message, retry_after=pause, **answer)
    return RequestError(message, **answer)


def _error_fields(response: Response) -> dict[str, Any]:
    body = _decoded(response)
    if isinstance(body, dict):
        for key in ("error", "detail"):
            said = body.get(key)
            if isinstance(said, dict):
                return said
            if isinstance(said, (str, list)) and said:  # routes of other APIs have our code and param beside it
                return body | {"message": str(said)}
        return {"message": body.get("message")}
    return {"message": response.body[:500].decode("utf-8", "replace").strip()}


def _decoded(response: Response) -> object:
    try:
        if "msgpack" in response.headers.get("content-type", ""):
            return wire.unpack(response.body)
        return json.loads(response.body)
    except (ValueError, RecursionError):
        return None


def _load_failure(details: Mapping[str, Any]) -> dict[str, Any]:
    permanent, attempts = details.get("permanent"), details.get("attempts")
    return {
        "error_class": _text(details.get("error_class")),
        "permanent": permanent if isinstance(permanent, bool) else None,
        "attempts": attempts if isinstance(attempts, int) else None,
    }


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
