"""The rows of an inference route in the list of routes, with what OpenAPI says of them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final, get_args

from sie_sdk.errors import ERRORS
from starlette.responses import Response

from sie_core.api.body.negotiation import JSON_TYPE, MSGPACK_TYPE
from sie_core.api.endpoint import Endpoint
from sie_core.api.http.envelopes import ACCEPTED, ENVELOPES, Dialect
from sie_core.api.inference.handler import handle
from sie_core.api.inference.route import Route
from sie_core.api.openapi.descriptions import ERROR_SCHEMAS, error_replies, first_line, reference
from sie_core.api.openapi.examples import described
from sie_core.contracts import Priority

_REQUEST_HEADERS: Final = (
    ("X-SIE-Timeout-Ms", {"type": "number", "exclusiveMinimum": 0}, "Answer 504 when so many milliseconds passed."),
    ("Prefer", {"type": "string", "pattern": r"^wait=[0-9]{1,6}$"}, "`wait=N`: seconds to wait for a model to load."),
    (
        "X-SIE-Priority",
        {"type": "string", "enum": list(get_args(Priority))},
        "A larger or a smaller share of the device where others wait; the same share as theirs without it.",
    ),
    ("X-SIE-MACHINE-PROFILE", {"type": "string"}, "The machine profile whose workers alone answer; or `pool/profile`."),
    ("X-SIE-Pool", {"type": "string"}, "The leased capacity that it is for."),
    ("X-SIE-Remote", {"type": "string", "enum": ["forbid"]}, "Only ever answer from this installation."),
)
_REPLY_HEADERS: Final = {
    "X-SIE-Request-ID": "Names the request in the server's log.",
    "X-SIE-Server-Version": "Version of the server.",
    "X-SIE-Served-By": "Always `local` here.",
    "X-SIE-Truncated": "How many items were cut to the model's length; absent where none was.",
    "X-SIE-Precision": "What the model computed in: `float32`, `bfloat16`, `float16`; not the dtype of the reply.",
    "X-SIE-Runner": "What ran the model; absent where its family names nothing.",
    "X-SIE-Ignored-Options": "Options that only other operations or families read, and `input_type` where the model "
    "has prompts and none for it; absent where there were none.",
    "X-Queue-Time": "Milliseconds waited.",
    "X-Queue-Wait-Time": "Of X-Queue-Time, milliseconds between a gateway and its worker; absent without a gateway.",
    "X-Tokenization-Time": "Milliseconds of preparation.",
    "X-Inference-Time": "Milliseconds on the device.",
    "X-Postprocessing-Time": "Milliseconds of postprocessing; absent where there was none.",
    "X-Total-Time": "Milliseconds altogether.",
}

_OUR_STATUSES: Final = (400, 404, 406, 413, 415, 500, 502, 503, 504)
_STATUSES: Final[dict[Dialect, tuple[int, ...]]] = {
    "native": _OUR_STATUSES,
    "openai": _OUR_STATUSES,
    "cohere": _OUR_STATUSES,
    "ollama": _OUR_STATUSES,
    "tei": (404, 406, 413, 415, 422, 424, 429, 500, 503, 504),
}
"""The statuses of a route beside 200."""
_PARAMETERS: Final = [
    {"name": name, "in": "header", "required": False, "schema": values, "description": says}
    for name, values, says in _REQUEST_HEADERS
]


def endpoints_of(route: Route) -> Iterator[Endpoint]:
    """List the paths of a route."""
    schema = route.error or ERROR_SCHEMAS[route.dialect]
    said = {
        "name": route.name,
        "description": route.about,
        "tags": [route.tag],
        "response_class": Response,
        "responses": _replies(route) | error_replies(*_STATUSES[route.dialect], dialect=route.dialect, schema=schema),
        "openapi_extra": {"requestBody": _body(route), "parameters": _PARAMETERS},
    }
    for path in route.paths:
        schemas = (route.body, route.reply, schema)
        yield Endpoint(path, partial(handle, route), route.dialect, ("POST",), True, said, schemas)


def _media_types(route: Route) -> tuple[str, ...]:
    return (JSON_TYPE, MSGPACK_TYPE) if route.msgpack else (JSON_TYPE,)


def _body(route: Route) -> dict[str, Any]:
    content: dict[str, Any] = {media_type: {"schema": reference(route.body)} for media_type in _media_types(route)}
    content[JSON_TYPE]["examples"] = described(route.examples)
    return {"required": True, "content": content}


def _replies(route: Route) -> dict[int | str, Any]:
    """Describe the replies that are no failures."""
    success = {
        "description": first_line(route.reply),
        "content": {media_type: {"schema": reference(route.reply)} for media_type in _media_types(route)},
        "headers": {name: {"description": says, "schema": {"type": "string"}} for name, says in _REPLY_HEADERS.items()},
    }
    replies: dict[int | str, Any] = {200: success}
    if ENVELOPES[route.dialect].accepts:
        replies[ACCEPTED] = _accepted(route.dialect)
    return replies


def _accepted(dialect: Dialect) -> dict[str, Any]:
    """Describe the reply of a cluster that has no worker yet."""
    row = ERRORS["PROVISIONING"]
    others = "Clients whose `X-SIE-SDK-Version` begins with `0.`, or that send `Prefer: wait`, get 503."
    return {
        "description": f"`{row.code}`: {row.meaning} {others}",
        "content": {JSON_TYPE: {"schema": reference(ERROR_SCHEMAS[dialect])}},
        "headers": {"Retry-After": {"description": "Seconds.", "schema": {"type": "number"}}},
    }
