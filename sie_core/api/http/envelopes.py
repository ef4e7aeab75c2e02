"""The envelopes of errors: the native one, the config service's, OpenAI's, Cohere's, Ollama's, and
that of text-embeddings-inference (TEI).

Codes, statuses and pauses come from the error table; statuses that TEI has otherwise are listed here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

from starlette.datastructures import Headers
from starlette.types import Scope

from sie_core.api.http.model_id import MalformedModelIdError
from sie_core.contracts import InferenceError
from sie_core.logs import current_request

Dialect = Literal["native", "configs", "openai", "cohere", "tei", "ollama"]

ACCEPTED: Final = 202
"""The HTTP status of a request that has to be sent again once a worker is there."""
DIALECT: Final = "sie.dialect"
"""The key of a request's scope with its dialect, which the list of routes gives, or a handler that goes by the body."""
CONFIGS_PREFIX: Final = "/v1/configs"
TEI_PREFIX: Final = "/tei/"
OPENAI_CODES: Final = {
    "INVALID_INPUT": "invalid_request",
    "MODEL_NOT_FOUND": "model_not_found",
    "INFERENCE_ERROR": "inference_error",
}
"""Codes with another name in OpenAI's API; every other code keeps the table's."""
_TEI_STATUSES: Final = {
    "INVALID_INPUT": 422,
    "INPUT_TOO_LONG": 413,
    "INFERENCE_ERROR": 424,
    "NON_FINITE_OUTPUT": 424,
    "MODEL_LOAD_FAILED": 424,
    "QUEUE_FULL": 429,
    "RESOURCE_EXHAUSTED": 429,
}
"""Codes with another status in TEI's API; every other code keeps the table's."""
_TEI_TYPES: Final = {424: "Backend", 429: "Overloaded", 503: "Unhealthy"}
"""TEI's `error_type` of a status; other statuses are Validation below 500 and Backend from there."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """One shape of errors."""

    body: Callable[[InferenceError], dict[str, Any]]
    status: Callable[[InferenceError], int] = lambda error: error.spec.status
    """The status of an error."""
    retry_after: Callable[[float], str] = lambda seconds: str(math.ceil(seconds))
    """The value of `Retry-After`: whole seconds, as HTTP has it."""
    accepts: bool = False
    """Whether its clients understand a 202: the request is not lost, and is to be sent again once a worker is there."""

    def status_of(self, error: InferenceError, scope: Scope) -> int:
        """Return the status of an error for the client of a request."""
        if error.code == "PROVISIONING" and self.accepts and _understands_202(scope):
            return ACCEPTED
        return self.status(error)


def _understands_202(scope: Scope) -> bool:
    """Whether a client knows a 202: those of major version 0 do not, nor who asked to be held and to get an answer."""
    headers = Headers(scope=scope)
    return not headers.get("x-sie-sdk-version", "").startswith("0.") and "wait=" not in headers.get("prefer", "")


def envelope_of(scope: Scope) -> Envelope:
    """Return the envelope of a request's errors; an application without a list of routes has two dialects."""
    return ENVELOPES[scope.get(DIALECT) or ("configs" if scope["path"].startswith(CONFIGS_PREFIX) else "native")]


def error_body(error: InferenceError) -> dict[str, Any]:
    """Describe `error` as `{"error": {"code", "message", "param"?, …, "request_id", "trace_id"?}}`."""
    request = current_request.get()
    named = {} if request is None else {"request_id": request.request_id, "trace_id": request.trace_id}
    ids = {name: value for name, value in named.items() if value}
    return {"error": error.details | {"code": error.code, "message": error.message} | _ours(error) | ids}


def configs_error_body(error: InferenceError) -> dict[str, Any]:
    """Describe `error` as natively, with the snake-case code that clients of the published config service read."""
    return {"error": {"error": error.code.lower()} | error_body(error)["error"]}


def openai_error_body(error: InferenceError) -> dict[str, Any]:
    """Describe `error` as `{"error": {"message", "type", "param", "code", …}}`."""
    fields = {
        "message": error.message,
        "type": "invalid_request_error" if error.spec.status < 500 else "server_error",
        "param": error.param,
        "code": OPENAI_CODES.get(error.code, error.code),
    }
    return {"error": error.details | fields}


def cohere_error_body(error: InferenceError) -> dict[str, Any]:
    """Describe `error` as `{"message", "code", "param"?, …}`."""
    return error.details | {"message": error.message} | _ours(error)


def tei_error_body(error: InferenceError) -> dict[str, Any]:
    """Describe `error` as `{"error", "error_type", "code", "param"?, …}`."""
    status = tei_status(error)
    error_type = _TEI_TYPES.get(status, "Validation" if status < 500 else "Backend")
    return error.details | {"error": error.message, "error_type": error_type} | _ours(error)


def ollama_error_body(error: InferenceError) -> dict[str, Any]:
    """Describe `error` as `{"error", "code", "param"?, …}`."""
    return error.details | {"error": error.message} | _ours(error)


def tei_status(error: InferenceError) -> int:
    """Return TEI's status of an error; a model that cannot do what is asked for is a 424."""
    if isinstance(error, MalformedModelIdError):
        return error.spec.status
    if error.code == "INVALID_INPUT" and error.param == "model":
        return 424
    return _TEI_STATUSES.get(error.code, error.spec.status)


def _ours(error: InferenceError) -> dict[str, Any]:
    return {"code": error.code} | ({} if error.param is None else {"param": error.param})


ENVELOPES: Final[dict[Dialect, Envelope]] = {
    # Its clients read fractions, and a load may take less than a second.
    "native": Envelope(error_body, retry_after=lambda seconds: f"{math.ceil(seconds * 10) / 10:g}", accepts=True),
    "configs": Envelope(configs_error_body),
    "openai": Envelope(openai_error_body),
    "cohere": Envelope(cohere_error_body),
    "tei": Envelope(tei_error_body, tei_status),
    "ollama": Envelope(ollama_error_body),
}
