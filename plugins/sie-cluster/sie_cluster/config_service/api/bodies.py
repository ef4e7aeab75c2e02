"""What requests carry: a body of at most a config's size, and an idempotency key."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request

from sie_core.api import Gate
from sie_core.api.body.body import read_body
from sie_core.api.http.offload import BodyThreads
from sie_core.catalog.configs.reading import LARGEST_CONFIG
from sie_core.contracts import InferenceError

KEY: Final = "Idempotency-Key"


async def read_bounded(request: Request, gate: Gate, threads: BodyThreads) -> bytes:
    """Read the body of a request.

    Raises:
        InferenceError: As `read_body`; `PAYLOAD_TOO_LARGE` as soon as more than `LARGEST_CONFIG` bytes are announced or
            received.
    """
    try:
        return bytes(await read_body(request, LARGEST_CONFIG, gate, threads))
    except InferenceError as error:
        if error.code != "PAYLOAD_TOO_LARGE":
            raise
    message = (
        f"The body is larger than {LARGEST_CONFIG} bytes, the most that a config may have: nothing was read of it."
    )
    raise InferenceError("PAYLOAD_TOO_LARGE", message)


def idempotency_key(request: Request) -> str | None:
    """Return the key of a write; None where there is none. Which keys are well formed, the service says.

    Raises:
        InferenceError: `INVALID_INPUT`: it is given twice.
    """
    given = request.headers.getlist(KEY)
    if len(given) > 1:
        message = f"{KEY} is given {len(given)} times; give it once."
        raise InferenceError("INVALID_INPUT", message, param=KEY, details={"error": "invalid_idempotency_key"})
    return given[0] if given else None
