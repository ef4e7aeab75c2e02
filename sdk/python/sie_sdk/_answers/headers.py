"""Reading the headers of an answer: what they say of the request, its timing and the pause to keep.

Every reader takes names in lower case and passes over a value that is malformed; it knows no route.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar, cast

from sie_sdk.types import RequestInfo, Timing, Usage

Value = TypeVar("Value")

_LONGEST_TEXT = 256
_MAX_COUNT = 2**64 - 1
_USAGE_HEADERS = {"x-sie-units-input-tokens": "input_tokens", "x-sie-units-images": "images"}
_TIMING_HEADERS = {
    "x-total-time": "total_ms",
    "x-queue-time": "queue_ms",
    "x-tokenization-time": "tokenization_ms",
    "x-inference-time": "inference_ms",
    "x-postprocessing-time": "postprocessing_ms",
}
_INFO_HEADERS = {
    "x-sie-request-id": "id",
    "x-sie-served-by": "served_by",
    "x-sie-runtime-instance": "runtime_instance_id",
}


def request_info(headers: Mapping[str, str], body_usage: object) -> RequestInfo | None:
    """Gather what headers, and the body's `usage`, say of the request; None where they say nothing valid."""
    info: dict[str, Any] = _gather(headers, _INFO_HEADERS, _printable)
    usage: dict[str, int] = _gather(headers, _USAGE_HEADERS, _count)
    if isinstance(body_usage, Mapping):
        for name in Usage.__annotations__:
            if type(body_usage.get(name)) is int:
                usage[name] = body_usage[name]
    if usage:
        info["usage"] = usage
    return cast("RequestInfo", info) or None


def timing(headers: Mapping[str, str], body: object) -> Timing | None:
    """Return the body's `timing`, else what the headers say of it; None where neither does."""
    if isinstance(body, Mapping):
        found = {name: float(ms) for name, ms in body.items() if isinstance(ms, (int, float))}
    else:
        found = _gather(headers, _TIMING_HEADERS, float)
    return cast("Timing", found) or None


def retry_after_s(value: str | None, now: float) -> float | None:
    """Read a `Retry-After` header, a number of seconds or an HTTP date; None for anything else."""
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            return max(0.0, parsedate_to_datetime(value).timestamp() - now)
        except (ValueError, OverflowError):
            return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


def _gather(headers: Mapping[str, str], names: Mapping[str, str], read: Callable[[str], Value]) -> dict[str, Value]:
    gathered = {}
    for header, name in names.items():
        if header in headers:
            try:
                gathered[name] = read(headers[header])
            except ValueError:
                continue
    return gathered


def _printable(text: str) -> str:
    if not 0 < len(text) <= _LONGEST_TEXT or not text.isascii() or not text.isprintable() or text != text.strip():
        raise ValueError(text)
    return text


def _count(text: str) -> int:
    count = int(text)
    if str(count) != text or not 0 <= count <= _MAX_COUNT:
        raise ValueError(text)
    return count
