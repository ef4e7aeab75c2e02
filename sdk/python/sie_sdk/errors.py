"""The one error table: what a code means, its HTTP status, whether a client retries and after how long.

The server, the queue and the client read the same rows; no other module may state a status of its own. Below it stand
the exceptions of the clients; it knows nothing of HTTP replies and how they become one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class ErrorSpec:
    """One row of the error table.

    `retry_after_s` is the pause a server suggests when it knows no better one; `None` sends no `Retry-After`.
    """

    code: str
    status: int
    retryable: bool
    retry_after_s: float | None
    meaning: str
    remedy: str


def _table(*rows: ErrorSpec) -> Mapping[str, ErrorSpec]:
    return MappingProxyType({row.code: row for row in rows})


ERRORS: Final = _table(
    ErrorSpec("INVALID_INPUT", 400, False, None, "A field of the request is wrong.", "Correct the field named in `param`."),
    ErrorSpec("INPUT_TOO_LONG", 400, False, None, "A text exceeds the model's limit and truncation was refused.", "Shorten or split the text, or allow truncation."),
    ErrorSpec("UNAUTHORIZED", 401, False, None, "The bearer token is missing or unknown.", "Send `Authorization: Bearer …`."),
    ErrorSpec("FORBIDDEN", 403, False, None, "The token may not do this, or a web page or host name is not allowed.", "Use a token with the right, or allow what `param` names."),
    ErrorSpec("NOT_FOUND", 404, False, None, "No such route or resource.", "Check the path."),
    ErrorSpec("MODEL_NOT_FOUND", 404, False, None, "No model of that name is served.", "Take a name of `GET /v1/models`."),
    ErrorSpec("POOL_NOT_FOUND", 404, False, None, "There is no such resource pool, or its lease has ended.", "Make it by `POST /v1/pools`, or name no pool."),
    ErrorSpec("METHOD_NOT_ALLOWED", 405, False, None, "The route does not take this method.", "Use the method of the documentation."),
    ErrorSpec("NOT_ACCEPTABLE", 406, False, None, "The reply cannot be given in any accepted format.", "Accept application/msgpack or application/json."),
    ErrorSpec("BUNDLE_CONFLICT", 409, False, None, "The bundle asked for does not serve the model.", "Ask for one of `compatible_bundles`, or for none."),
    ErrorSpec("CONTENT_CONFLICT", 409, False, None, "The model has these profiles or fields already, with other content.", "Leave out what `conflicting_profiles` and `conflicting_fields` name, or replace the config by PUT."),
    ErrorSpec("TOO_MANY_POOLS", 409, False, None, "The cluster keeps no more resource pools.", "Delete a pool that is not needed."),
    ErrorSpec("PAYLOAD_TOO_LARGE", 413, False, None, "The request body exceeds the server's limit.", "Send fewer items per request."),
    ErrorSpec("REPLY_TOO_LARGE", 413, False, None, "The reply would exceed the server's limit.", "Send fewer items per request, ask for msgpack or a smaller dtype."),
    ErrorSpec("UNSUPPORTED_MEDIA_TYPE", 415, False, None, "The body's content type is not understood.", "Send application/msgpack or application/json."),
    ErrorSpec("VALIDATION_ERROR", 422, False, None, "A model config is wrong, or no bundle can serve it.", "Correct what `details` name."),
    ErrorSpec("IDEMPOTENCY_MISMATCH", 422, False, None, "The idempotency key was used for another request.", "Send a key of its own with each request."),
    ErrorSpec("RATE_LIMITED", 429, True, 1.0, "Too many requests from this client.", "Wait and retry."),
    ErrorSpec("CLIENT_CLOSED_REQUEST", 499, False, None, "The client went away before the answer.", "None: nobody reads this answer."),
    ErrorSpec("INFERENCE_ERROR", 500, False, None, "The model failed on this request.", "See the server's log under the request id."),
    ErrorSpec("NON_FINITE_OUTPUT", 500, False, None, "The model returned NaN or infinity for an item.", "Check the item and the model's precision."),
    ErrorSpec("INTERNAL_ERROR", 500, False, None, "The server failed.", "See the server's log under the request id."),
    ErrorSpec("MODEL_LOAD_FAILED", 502, False, None, "The model could not be loaded.", "See `error_class`: a permanent failure needs the operator."),
    ErrorSpec("PROVISIONING", 503, True, 5.0, "No worker serves the model yet; capacity is being added.", "Wait and retry."),
    ErrorSpec("MODEL_LOADING", 503, True, 5.0, "The model is being loaded.", "Wait and retry."),
    ErrorSpec("MODEL_NOT_LOADED", 503, True, 5.0, "The model is being unloaded.", "Wait and retry."),
    ErrorSpec("LORA_LOADING", 503, True, 1.0, "The LoRA adapter is being loaded.", "Wait and retry."),
    ErrorSpec("RESOURCE_EXHAUSTED", 503, True, 5.0, "The device ran out of memory.", "Wait and retry, with smaller requests."),
    ErrorSpec("QUEUE_FULL", 503, True, 1.0, "The server's queue is full.", "Wait and retry."),
    ErrorSpec("QUEUE_UNAVAILABLE", 503, True, 5.0, "The server takes no new work: it is draining or its queue is away.", "Wait and retry elsewhere."),
    ErrorSpec("CONFIG_STORE_UNAVAILABLE", 503, True, 1.0, "The config service cannot reach what it keeps; whether a write counts is open.", "Retry with the same `Idempotency-Key`."),
    ErrorSpec("DEADLINE_EXCEEDED", 504, True, None, "The request's deadline passed before its answer.", "Allow more time or send less."),
)  # fmt: skip
"""Every code that travels, in the order of their statuses."""


def error_spec(code: str) -> ErrorSpec:
    """Return the row of `code`.

    Raises:
        KeyError: `code` is not in the table.
    """
    return ERRORS[code]


class SIEError(Exception):
    """Anything a client of SIE raises for a call that did not succeed; `ValueError` and `TypeError` are for arguments."""


class SIEConnectionError(SIEError):
    """No answer came: the server could not be reached, broke the connection or took longer than the read timeout."""


class _Answered(SIEError):
    """The server answered, and not with a result.

    `code` is a code of the table or the server's own, None where it gave none. `param` names the field at fault.
    `request` is what the reply said of the request, as in a result's `request`.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        status_code: int | None = None,
        param: str | None = None,
        request: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.status_code = status_code
        self.param = param
        self.request = request


class RequestError(_Answered):
    """The request was refused (4xx), or the answer is not one this client can read."""


class InputTooLongError(RequestError):
    """A text exceeds the limit of `model` and truncation was refused."""

    def __init__(self, message: str, *, model: str | None = None, **answer: Any) -> None:
        super().__init__(message, **answer)
        self.model = model


class RateLimitError(RequestError):
    """Too many requests, until the budget ended; `retry_after` is the server's last pause in seconds."""

    def __init__(self, message: str, *, retry_after: float | None = None, **answer: Any) -> None:
        super().__init__(message, **answer)
        self.retry_after = retry_after


class ServerError(_Answered):
    """The server failed (5xx); `retry_after` is the pause in seconds it asked for, if any."""

    def __init__(self, message: str, *, retry_after: float | None = None, **answer: Any) -> None:
        super().__init__(message, **answer)
        self.retry_after = retry_after


class ModelLoadFailedError(ServerError):
    """The model cannot be loaded. `permanent` failures of `error_class` stay until the operator acts."""

    def __init__(
        self,
        message: str,
        *,
        error_class: str | None = None,
        permanent: bool | None = None,
        attempts: int | None = None,
        **answer: Any,
    ) -> None:
        super().__init__(message, **answer)
        self.error_class = error_class
        self.permanent = permanent
        self.attempts = attempts


class ResourceExhaustedError(ServerError):
    """The device had no memory for the request, after `retries` further tries."""

    def __init__(self, message: str, *, model: str | None = None, retries: int = 0, **answer: Any) -> None:
        super().__init__(message, **answer)
        self.model = model
        self.retries = retries


class IncompleteBatchError(ServerError):
    """A reply holds another number of results than items were sent; `results` are those that came."""

    def __init__(
        self,
        message: str,
        *,
        results: Sequence[Any],
        missing_ids: Sequence[str],
        expected: int,
        request_id: str | None = None,
        **answer: Any,
    ) -> None:
        super().__init__(message, **answer)
        self.results = list(results)
        self.missing_ids = list(missing_ids)
        self.expected = expected
        self.received = len(self.results)
        self.request_id = request_id


class ProvisioningError(SIEError):
    """No worker serves the model and the budget ended, or waiting for capacity was declined."""

    def __init__(self, message: str, *, gpu: str | None = None, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.gpu = gpu
        self.retry_after = retry_after


class PoolError(SIEError):
    """A call on the resource pool `pool_name` was refused; `state` is the pool's, where that is why."""

    def __init__(self, message: str, *, pool_name: str | None = None, state: str | None = None) -> None:
        super().__init__(message)
        self.pool_name = pool_name
        self.state = state


class ModelLoadingError(SIEError):
    """The model was still loading when the budget ended."""

    def __init__(self, message: str, *, model: str | None = None) -> None:
        super().__init__(message)
        self.model = model


class LoraLoadingError(SIEError):
    """The LoRA adapter was still loading when the tries or the budget ended."""

    def __init__(self, message: str, *, lora: str | None = None, model: str | None = None) -> None:
        super().__init__(message)
        self.lora = lora
        self.model = model
