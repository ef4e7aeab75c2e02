"""An inference request without its body: the model of its path, the formats, the deadline, the wait for a load."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Final, cast, get_args

from starlette.types import Scope

from sie_core.api.body.negotiation import BodyFormat, body_format, reply_type
from sie_core.api.context import Api
from sie_core.api.http.limits import MAX_LOAD_WAIT_S
from sie_core.api.inference.capacity import Capacity, asked_capacity, check_profile
from sie_core.api.paths.canonical import DEPLOYMENT
from sie_core.api.request import CLIENT, RequestHeaders
from sie_core.contracts import InvalidInput, LoadWait, Priority
from sie_core.settings import Settings

PLACEHOLDERS: Final = ("tei", "text-embeddings-inference", "any", "-")
"""What clients write for `model` where TEI's manual has them fill in something: it means the model of the path."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request, without its body."""

    settings: Settings
    path_model: str | None
    """The model that the path names."""
    path_wins: bool
    """Whether the body may name another model, which is not asked: Azure's clients do."""
    body_format: BodyFormat
    reply_type: str
    """The media type of the reply."""
    deadline: float | None
    """`time.monotonic()` seconds."""
    load_wait: LoadWait
    """For a model that is not loaded."""
    wait_applied: bool
    """Whether the client chose that wait, and its deadline leaves that much time."""
    client: str
    """What tells its sender from others."""
    priority: Priority | None
    capacity: Capacity

    def model(self, named: str | None = None) -> str:
        """Return the model of the path, else the one that the body names, else the default model.

        Raises:
            InvalidInput: Path and body name two models.
        """
        if self.path_model is None:
            return self.settings.default_model if named is None else named
        if not self.path_wins and named not in (None, self.path_model, *PLACEHOLDERS):
            message = f"`model` is {named!r} and the path says {self.path_model!r}: give one of them."
            raise InvalidInput(message, param="model")
        return self.path_model


def read_call(
    api: Api, scope: Scope, headers: RequestHeaders, path_model: str | None, *, msgpack: bool, waits: bool
) -> Call:
    """Read the headers of one request.

    Args:
        api: Its machine profile must be the one that the client asks for, unless its backend has several.
        scope: Of the request.
        headers: Of the request.
        path_model: The model that the path names.
        msgpack: Whether the route speaks msgpack.
        waits: Whether a client that does not say how long waits for any load, or for one that will soon be done.

    Raises:
        InferenceError: `INVALID_INPUT`, with the header's name in `param`; `UNSUPPORTED_MEDIA_TYPE`; `NOT_ACCEPTABLE`.
    """
    capacity = asked_capacity(headers)
    if capacity.profile is not None and not api.places_requests:
        check_profile(capacity.profile, api.machine_profile)
    if "x-sie-remote" in headers:
        _check_remote(headers.getlist("x-sie-remote"))
    timeout = _seconds(headers["x-sie-timeout-ms"]) if "x-sie-timeout-ms" in headers else None
    wait = _preferred_wait(headers.getlist("prefer")) if "prefer" in headers else None
    given = body_format(headers.get("content-type", ""), msgpack=msgpack)
    settings = api.settings
    own_wait = LoadWait(settings.model_wait_s) if waits else LoadWait(settings.native_load_wait_s, if_soon=True)
    return Call(
        settings=settings,
        path_model=path_model,
        path_wins=DEPLOYMENT in scope,
        body_format=given,
        reply_type=reply_type(headers.get("accept", ""), given, msgpack=msgpack),
        deadline=None if timeout is None else time.monotonic() + timeout,
        load_wait=own_wait if wait is None else LoadWait(wait),
        wait_applied=wait is not None and (timeout is None or timeout >= wait),
        client=scope[CLIENT],
        priority=_priority(headers.getlist("x-sie-priority")) if "x-sie-priority" in headers else None,
        capacity=capacity,
    )


def _check_remote(values: list[str]) -> None:
    if values != ["forbid"]:
        message = f"X-SIE-Remote is {', '.join(values)[:100]!r}; `forbid`, given once, is the only value."
        raise InvalidInput(message, param="X-SIE-Remote")


def _seconds(given: str) -> float:
    """Read `X-SIE-Timeout-Ms`."""
    try:
        milliseconds = float(given)
    except ValueError:
        milliseconds = math.nan
    if not (math.isfinite(milliseconds) and milliseconds > 0):
        message = f"X-SIE-Timeout-Ms is {given[:40]!r}; it takes a number of milliseconds above 0."
        raise InvalidInput(message, param="X-SIE-Timeout-Ms")
    return milliseconds / 1000


def _priority(values: list[str]) -> Priority:
    """Read `X-SIE-Priority`."""
    known = get_args(Priority)
    if len(values) > 1 or values[0] not in known:
        message = f"X-SIE-Priority is {', '.join(values)[:100]!r}; it takes {' or '.join(known)}, given once."
        raise InvalidInput(message, param="X-SIE-Priority")
    return cast("Priority", values[0])


def _preferred_wait(lines: list[str]) -> int | None:
    """Read `wait=N` of `Prefer`: whole seconds, at most `MAX_LOAD_WAIT_S`. RFC 7240 ignores unknown preferences."""
    for line in lines:
        for preference in line.split(","):
            name, _, value = preference.partition(";")[0].partition("=")
            value = value.strip().strip('"')
            if name.strip().lower() == "wait" and value.isdecimal() and len(value) < 7:
                return min(int(value), MAX_LOAD_WAIT_S)
    return None
