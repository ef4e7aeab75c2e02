"""The format of a request's body and of its answer: msgpack or JSON.

An explicit `Accept` decides; without one the answer has the format of the request.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, Literal

from sie_core.contracts import InferenceError

BodyFormat = Literal["msgpack", "json"]

JSON_TYPE: Final = "application/json"
MSGPACK_TYPE: Final = "application/msgpack"
_MSGPACK_TYPES: Final = (MSGPACK_TYPE, "application/x-msgpack", "application/vnd.msgpack")
_JSON_SPELLINGS: Final = frozenset(
    {"", JSON_TYPE, "text/json", "text/plain", "application/x-www-form-urlencoded", "application/octet-stream"}
)
"""Types that clients send for JSON; `curl -d` sends the form type by default."""


@lru_cache(maxsize=256)
def body_format(content_type: str, *, msgpack: bool = True) -> BodyFormat:
    """Tell a body's format by its `Content-Type`; a missing one means JSON.

    Args:
        content_type: The header, empty where there is none.
        msgpack: Whether the route takes msgpack.

    Raises:
        InferenceError: `UNSUPPORTED_MEDIA_TYPE`.
    """
    media_type, _, parameters = content_type.lower().partition(";")
    media_type = media_type.strip()
    if msgpack and media_type in _MSGPACK_TYPES:
        return "msgpack"
    if media_type in _JSON_SPELLINGS or media_type.endswith("+json"):
        _refuse_charset(parameters)
        return "json"
    known = f"{MSGPACK_TYPE} or {JSON_TYPE}" if msgpack else JSON_TYPE
    raise InferenceError(
        "UNSUPPORTED_MEDIA_TYPE", f"Content-Type {content_type[:100]!r} is not understood; send {known}."
    )


def _refuse_charset(parameters: str) -> None:
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip() == "charset" and value.strip(" \"'") not in ("utf-8", "utf8", "us-ascii"):
            raise InferenceError(
                "UNSUPPORTED_MEDIA_TYPE", f"charset {value.strip()[:40]!r} is not understood; send UTF-8."
            )


@lru_cache(maxsize=256)
def reply_type(accept: str, body: BodyFormat, *, msgpack: bool = True) -> str:
    """Choose the media type of the answer.

    The highest quality wins; at equal quality a named type wins over a wildcard, and msgpack over JSON.

    Args:
        accept: The `Accept` header, empty where there is none.
        body: The format of the request's body, taken where the client accepts anything.
        msgpack: Whether the route gives msgpack.

    Raises:
        InferenceError: `NOT_ACCEPTABLE`.
    """
    own = MSGPACK_TYPE if body == "msgpack" and msgpack else JSON_TYPE
    if not accept.strip():
        return own
    offers = (*_MSGPACK_TYPES, JSON_TYPE) if msgpack else (JSON_TYPE,)
    ranges = dict(_accepted(accept))
    # (quality, named rather than matched by a wildcard, earlier in `offers`)
    ranked = [(ranges[offer], 1, -place, offer) for place, offer in enumerate(offers) if ranges.get(offer, 0) > 0]
    wildcard = ranges.get("application/*", ranges.get("*/*", 0.0))
    if wildcard > 0 and ranges.get(own, 1.0) > 0:
        ranked.append((wildcard, 0, 0, own))
    if not ranked:
        known = " or ".join((MSGPACK_TYPE, JSON_TYPE) if msgpack else (JSON_TYPE,))
        raise InferenceError(
            "NOT_ACCEPTABLE", f"Accept {accept[:100]!r} holds no format of this route; accept {known}."
        )
    return max(ranked)[3]


def _accepted(accept: str) -> list[tuple[str, float]]:
    ranges = []
    for part in accept.lower().split(","):
        media_type, *parameters = (piece.strip() for piece in part.split(";"))
        quality = next((p[2:] for p in parameters if p.startswith("q=")), "1")
        try:
            ranges.append((media_type, min(max(float(quality), 0.0), 1.0)))
        except ValueError:
            ranges.append((media_type, 0.0))
    return ranges
