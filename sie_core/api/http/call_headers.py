"""What the headers of an inference request ask for, and what they may not.

It must not know bodies, models or the backend.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from starlette.datastructures import Headers

from sie_core.contracts import InferenceError, InvalidInput


@dataclass(frozen=True, slots=True)
class CallHeaders:
    """The wishes of one call's headers."""

    deadline: float | None
    """`time.monotonic()` seconds."""
    load_wait_s: float | None
    """How long to wait for a model that is not loaded; None where the client did not say."""
    wait_applied: bool = False
    """Whether the client said so, and its deadline leaves that much time."""


def read_call_headers(headers: Headers, machine_profile: str | None) -> CallHeaders:
    """Read the headers of one call.

    Args:
        headers: Of the request.
        machine_profile: What this server is, compared with what the client asks for.

    Raises:
        InferenceError: `INVALID_INPUT`, with the header's name in `param`.
    """
    _check_machine_profile(headers, machine_profile)
    _check_remote(headers)
    timeout, wait = _timeout(headers), _preferred_wait(headers)
    deadline = None if timeout is None else time.monotonic() + timeout
    return CallHeaders(deadline, wait, wait is not None and (timeout is None or timeout >= wait))


def _check_machine_profile(headers: Headers, own: str | None) -> None:
    asked = headers.get("x-sie-machine-profile")
    if asked is None or (own is not None and asked.rpartition("/")[2].lower() == own.lower()):
        return
    is_a = f"is {own!r}" if own else "has no machine profile"
    raise InferenceError(
        "INVALID_INPUT",
        f"The machine profile {asked[:100]!r} was asked for and this server {is_a}; call it without `gpu`.",
        param="X-SIE-MACHINE-PROFILE",
        details={"requested_profile": asked[:100], "worker_identity": own},
    )


def _check_remote(headers: Headers) -> None:
    values = headers.getlist("x-sie-remote")
    if values and values != ["forbid"]:
        message = f"X-SIE-Remote is {', '.join(values)[:100]!r}; `forbid`, given once, is the only value."
        raise InvalidInput(message, param="X-SIE-Remote")


def _timeout(headers: Headers) -> float | None:
    """Read the seconds until the answer is of no use."""
    given = headers.get("x-sie-timeout-ms")
    if given is None:
        return None
    try:
        milliseconds = float(given)
    except ValueError:
        milliseconds = math.nan
    if not (math.isfinite(milliseconds) and milliseconds > 0):
        message = f"X-SIE-Timeout-Ms is {given[:40]!r}; it takes a number of milliseconds above 0."
        raise InvalidInput(message, param="X-SIE-Timeout-Ms")
    return milliseconds / 1000


def _preferred_wait(headers: Headers) -> int | None:
    """Read `wait=N` of `Prefer` (RFC 7240: whole seconds; what is not understood is passed over)."""
    for line in headers.getlist("prefer"):
        for preference in line.split(","):
            name, _, value = preference.partition(";")[0].partition("=")
            value = value.strip().strip('"')
            if name.strip().lower() == "wait" and value.isdecimal() and len(value) < 7:
                return int(value)
    return None
