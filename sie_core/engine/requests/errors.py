"""The typed errors that clients get for failures inside the engine. The text of untyped exceptions stays in the log."""

from __future__ import annotations

import logging

from sie_core.contracts import InferenceError
from sie_core.contracts.errors import OUT_OF_MEMORY as OUT_OF_MEMORY

log = logging.getLogger(__name__)


def request_error(
    error: BaseException, stage: str, request_id: str, model: str, trace_id: str | None = None
) -> InferenceError:
    """Convert a stage's exception for one request to the client's error; an untyped exception is logged in full."""
    if isinstance(error, InferenceError):
        return error
    if isinstance(error, OUT_OF_MEMORY):
        message = f"The device ran out of memory with a single item of this request to {model}."
        return InferenceError("RESOURCE_EXHAUSTED", message)
    extra = {"request_id": request_id, "trace_id": trace_id}
    log.error("%s failed in %s, request %s", model, stage, request_id, exc_info=error, extra=extra)
    return InferenceError("INFERENCE_ERROR", f"{model} failed on this request; the server's log says why.")


def deadline_exceeded() -> InferenceError:
    """Make the error of a request whose deadline passed."""
    return InferenceError("DEADLINE_EXCEEDED", "The request's deadline passed before its answer was there.")


def unavailable(why: str) -> InferenceError:
    """Make the error of a request that the engine cannot take or finish."""
    return InferenceError("QUEUE_UNAVAILABLE", f"{why[:1].upper()}{why[1:]}. Retry on another server, or later.")
