"""An error of the table as a map, and back: how a worker's refusal reaches the client of a gateway."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from sie_sdk.errors import ERRORS

from sie_core.contracts import InferenceError

UNKNOWN = "INTERNAL_ERROR"
MOST_PAUSE_S = 3600.0
WORKER_LOST = "WORKER_LOST"
"""A sidecar's word to a gateway: the adapter process ended while the slice was at work. No client sees it."""
GIVEN_TOO_OFTEN = "GIVEN_TOO_OFTEN"
"""The same: workers were given the slice `SIE_MAX_DELIVER` times, and none answered it."""
_ITEM = re.compile(r"(items|documents|inputs|input|texts)\[(\d+)\]")


def error_to_map(error: InferenceError) -> dict[str, Any]:
    """Write an error; fields that are not set are left out."""
    fields = {
        "code": error.code,
        "message": error.message,
        "param": error.param,
        "retry_after_s": error.retry_after_s,
        "details": error.details,
    }
    return {name: value for name, value in fields.items() if value not in (None, {})}


def error_from_map(fields: Mapping[str, Any], first: int = 0) -> InferenceError:
    """Read an error of a peer.

    Args:
        fields: What `error_to_map` wrote; a peer of another release may know codes and fields that this one does not.
        first: The index of the slice's first item in its request: field and message name the item of the request.

    An unknown code is an `INTERNAL_ERROR` that names it, with the peer's message.
    """
    code, message = str(fields.get("code", "")), str(fields.get("message", ""))
    param, pause, details = fields.get("param"), fields.get("retry_after_s"), fields.get("details")
    if code not in ERRORS:
        code, message = (
            UNKNOWN,
            f"A worker answered with the code {code[:64]!r}, which this gateway does not know: {message}",
        )
    return InferenceError(
        code,
        _moved(message, first),
        param=_moved(param, first) if isinstance(param, str) else None,
        retry_after_s=float(pause) if isinstance(pause, (int, float)) and 0 <= pause <= MOST_PAUSE_S else None,
        details=details if isinstance(details, Mapping) and _is_json(details) else None,
    )


def _is_json(value: Any) -> bool:
    """Whether a reply in JSON can hold a value of a peer."""
    if isinstance(value, Mapping):
        return all(isinstance(name, str) for name in value) and all(map(_is_json, value.values()))
    if isinstance(value, list):
        return all(map(_is_json, value))
    return value is None or isinstance(value, (str, int, float))


def _moved(text: str, first: int) -> str:
    """Name the items of the request in place of those of its slice."""
    if not first:
        return text
    return _ITEM.sub(lambda found: f"{found[1]}[{int(found[2]) + first}]", text, count=1)
