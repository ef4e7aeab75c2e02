"""Reads a request's body up to a limit, decodes it and checks it against its schema."""

from __future__ import annotations

import asyncio
import time
from difflib import get_close_matches
from itertools import islice
from typing import Any, Final, TypeVar

import numpy as np
from pydantic import BaseModel, ValidationError
from sie_sdk import wire
from starlette.requests import Request

from sie_core.api.body import strict_json
from sie_core.api.body.negotiation import BodyFormat
from sie_core.api.codings.unpacking import coding_of, unpacked
from sie_core.api.fields.body import LIKE
from sie_core.api.http.gate import Gate
from sie_core.api.http.limits import MAX_BODY_PAUSE_S, MAX_BODY_S, MAX_BODY_VALUES, MIN_BODY_PROGRESS
from sie_core.api.http.offload import BodyThreads
from sie_core.api.request import CLIENT, HEADERS, HELD, RequestHeaders
from sie_core.contracts import InferenceError

Schema = TypeVar("Schema", bound=BaseModel)


RawBody = bytes | memoryview
"""A body as it came; a large one is not copied."""
SMALL: Final = 2**20
"""Bytes of a body that one call may copy."""
_LOOKED_AT: Final = 64
"""Fields of a body among which one is looked for that was meant for another."""


async def read_body(
    request: Request, limit: int, gate: Gate, threads: BodyThreads, deadline: float | None = None
) -> RawBody:
    """Read the whole body, and unpack it where it is compressed.

    Args:
        request: The request.
        limit: The most bytes it may have, as it is sent and unpacked.
        gate: Counts its bytes: all at once where they are announced, before any is read, else as they arrive.
        threads: Unpack a large body.
        deadline: `time.monotonic()` seconds after which the client no longer wants the answer.

    Raises:
        InferenceError: `PAYLOAD_TOO_LARGE` as soon as more than `limit` bytes are announced, received or unpacked;
            `UNSUPPORTED_MEDIA_TYPE` for one that is compressed in an unknown way, `INVALID_INPUT` for one that is not
            compressed as it says; `CLIENT_CLOSED_REQUEST` if the client disconnected; `DEADLINE_EXCEEDED` if it took
            too long; `QUEUE_FULL` if the bodies of others take too much memory.
    """
    headers: RequestHeaders = request.scope[HEADERS]
    coding = coding_of(headers["content-encoding"]) if "content-encoding" in headers else None
    announced = headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > limit:
        raise _too_large(limit)
    data = await _received(request, limit, int(announced) if announced.isdecimal() else None, gate, deadline)
    if coding is None:
        return data
    body = await unpacked(data, coding, limit, threads)
    if body is None:
        raise _too_large(limit)
    _hold(request, gate, len(body))
    return body


async def _received(request: Request, limit: int, announced: int | None, gate: Gate, deadline: float | None) -> RawBody:
    """Read the whole body, as it is sent."""
    now = asyncio.get_running_loop().time
    patience = Patience(now(), None if deadline is None else deadline - time.monotonic())
    room = limit
    if announced is not None:
        room = announced
        _hold(request, gate, room)
    body: memoryview | None = None
    size, more = 0, True
    try:
        async with asyncio.timeout_at(patience.until) as timer:
            while more:
                event = await request.receive()
                if event["type"] == "http.disconnect":
                    raise InferenceError("CLIENT_CLOSED_REQUEST", "The client went away while it sent the body.")
                chunk, more = event.get("body", b""), event.get("more_body", False)
                start, size = size, size + len(chunk)
                if size > room:
                    raise _too_large(limit)
                _hold(request, gate, size)
                if body is None:
                    if not more:
                        return bytes(chunk)
                    # Filled as the parts come: joined at the end in one call, 32 MB would keep everybody else waiting
                    # for up to 0.1 s.
                    body = np.empty(room, np.uint8).data
                body[start:size] = chunk
                if patience.renewed(size, now()):
                    timer.reschedule(patience.until)
    except TimeoutError:
        pace = f"{MIN_BODY_PROGRESS} bytes in every {MAX_BODY_PAUSE_S} s and all in {MAX_BODY_S} s"
        message = f"The body was not sent in time: within X-SIE-Timeout-Ms; {pace}."
        raise InferenceError("DEADLINE_EXCEEDED", message) from None
    assert body is not None
    return bytes(body[:size]) if size <= SMALL else body[:size]


def _hold(request: Request, gate: Gate, size: int) -> None:
    """Have the gate count `size` bytes of the body, with those it counts already, if it admitted the request."""
    before = request.scope.get(HELD, 0)
    if size > before and CLIENT in request.scope:
        gate.hold(size - before, request.scope[CLIENT])
        request.scope[HELD] = size


class Patience:
    """Says how long to wait for a body: as long as it makes progress, up to an end.

    Args:
        now: Seconds, when the wait began.
        left: Seconds after which the client no longer wants the answer; None for no deadline.
    """

    def __init__(self, now: float, left: float | None) -> None:
        self._end = now + (MAX_BODY_S if left is None else min(MAX_BODY_S, left))
        self._size = 0
        self.until = min(self._end, now + MAX_BODY_PAUSE_S)

    def renewed(self, size: int, now: float) -> bool:
        """Extend the wait where `size` bytes are progress enough; return whether they were."""
        if size < self._size + MIN_BODY_PROGRESS:
            return False
        self._size = size
        self.until = min(self._end, now + MAX_BODY_PAUSE_S)
        return True


def _too_large(limit: int) -> InferenceError:
    message = f"The body is larger than {limit} bytes (SIE_MAX_REQUEST_BODY_BYTES); send fewer items per request."
    return InferenceError("PAYLOAD_TOO_LARGE", message)


def decode_body(data: RawBody, body: BodyFormat, schema: type[Schema]) -> Schema:
    """Decode `data` and check it against `schema`.

    Raises:
        InferenceError: `INVALID_INPUT`, naming the first field at fault in `param`.
    """
    if body == "json":
        value = strict_json.loads(data)
    else:
        try:
            value = wire.unpack(data, most=MAX_BODY_VALUES)
        except wire.WireError as error:
            raise InferenceError("INVALID_INPUT", f"The body is not valid msgpack: {error}.") from None
    if not isinstance(value, dict):
        raise InferenceError("INVALID_INPUT", f"The body must be a map of fields, not {kind_of(value)}.")
    try:
        return schema.model_validate(value, context={"format": body})
    except ValidationError as error:
        raise _invalid(error) from None


def _invalid(error: ValidationError) -> InferenceError:
    problem = error.errors(include_url=False, include_context=False)[0]
    param = path_of(problem["loc"])
    if problem["type"] == "missing":
        held = problem["input"] if isinstance(problem["input"], dict) else {}
        near = get_close_matches(str(problem["loc"][-1]), map(str, islice(held, _LOOKED_AT)), 1, LIKE)
        other = f"; `{near[0]}` is no field here" if near else ""
        return InferenceError("INVALID_INPUT", f"`{param}` is required{other}.", param=param)
    if problem["type"] == "extra_forbidden":
        return InferenceError("INVALID_INPUT", f"`{param}` is not understood here; leave it out.", param=param)
    reason = problem["msg"].removeprefix("Value error, ").removesuffix(".")
    if not param:
        return InferenceError("INVALID_INPUT", f"The body {reason}.")
    says_it = problem["type"] in ("value_error", "too_short", "too_long")
    given = "" if says_it else f", not {kind_of(problem['input'])}"
    return InferenceError("INVALID_INPUT", f"`{param}`: {reason}{given}.", param=param)


def path_of(location: tuple[int | str, ...]) -> str:
    """Write the path of a value in a body: `items[3].text`."""
    path = ""
    for step in location:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else step
    return path


def kind_of(value: Any) -> str:
    """Describe a decoded value for an error message; short values are quoted."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return f"the number {value}" if len(str(value)) < 30 else "a number"
        case str():
            return f"the string {value!r}" if len(value) <= 40 else f"a string of {len(value)} characters"
        case bytes():
            return f"{len(value)} binary bytes"
        case list():
            return f"a list of {len(value)}"
        case dict():
            return "a map"
    return f"a {type(value).__name__}"
