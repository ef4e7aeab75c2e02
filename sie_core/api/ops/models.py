"""`GET /v1/models` and `GET /v1/models/{model}`: what is served and in which state."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any, Final

import orjson
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from sie_core.api.body.negotiation import JSON_TYPE
from sie_core.api.context import Api
from sie_core.api.http.model_id import check_model_id
from sie_core.api.openapi.descriptions import lookup
from sie_core.api.ops.models_schema import MergedModel, ModelsReply
from sie_core.contracts import InvalidInput, ModelInfo

PART: Final = 200
"""Models that are described at a time. Those of a longer listing are sent as they are written: to write twenty thousand
at once takes half a second, in which no other request is answered, and ten times the memory."""

_AVAILABLE: Final = {
    "name": "available",
    "in": "query",
    "required": False,
    "schema": {"type": "string", "enum": ["true", "false"]},
    "description": "`true` lists only models that need nothing fetched, `false` only the others.",
}


async def list_models(api: Api, request: Request) -> Response:
    """List every served model, those first whose weights are here."""
    available = request.query_params.get("available")
    wanted = None if available is None else _truth(available)
    models = [model for model in api.backend.models() if wanted in (None, model.available)]
    parts = _listing(models, api)
    if len(models) <= PART:
        return Response(b"".join(parts), media_type=JSON_TYPE)
    return StreamingResponse(_sent(parts), media_type=JSON_TYPE)


async def get_model(api: Api, request: Request) -> Response:
    """Describe one model: `org/name`, or `org/name:profile`."""
    info = api.backend.model(check_model_id(request.path_params["model"]))
    return Response(orjson.dumps(openai_model(info, api) | model_body(info, api)), media_type=JSON_TYPE)


ENDPOINTS: Final = (
    lookup("/v1/models", list_models, ModelsReply, 400, tag="models", parameters=(_AVAILABLE,)),
    lookup("/v1/models/{model:path}", get_model, MergedModel, 400, 404, tag="models"),
)


def _listing(models: Sequence[ModelInfo], api: Api) -> Iterator[bytes]:
    """Write the reply of `GET /v1/models`."""
    yield b'{"object":"list","data":['
    yield from _rows(models, lambda model: openai_model(model, api))
    yield b'],"models":['
    yield from _rows(models, lambda model: model_body(model, api))
    yield b"]}"


def _rows(models: Sequence[ModelInfo], described: Callable[[ModelInfo], dict[str, Any]]) -> Iterator[bytes]:
    for start in range(0, len(models), PART):
        rows = orjson.dumps([described(model) for model in models[start : start + PART]])[1:-1]
        yield b"," + rows if start else rows


async def _sent(parts: Iterator[bytes]) -> AsyncIterator[bytes]:
    for part in parts:
        yield part
        await asyncio.sleep(0)  # for other requests


def openai_model(model: ModelInfo, api: Api) -> dict[str, Any]:
    """Describe a model as OpenAI does. It exists, as far as a client can tell, since the server started."""
    owner = model.id.partition("/")[0] if "/" in model.id else "sie"
    return {"id": model.id, "object": "model", "created": int(api.started_at), "owned_by": owner}


def model_body(model: ModelInfo, api: Api) -> dict[str, Any]:
    """Describe a model as SIE does; what is not known of it is left out."""
    known = {
        "max_sequence_length": model.max_sequence_length,
        "revision": model.revision,
        "adapter": model.adapter,
        "precision": model.precision,
        "runner": model.runner,
        "memory_bytes": model.memory_bytes,
        "last_used_at": model.last_used_at,
        "bundles": model.bundles or None,
        "workers": model.workers,
    }
    return {
        "name": model.id,
        "inputs": model.inputs,
        "outputs": model.outputs,
        "operations": model.operations,
        "dims": dict(model.dims),
        "loaded": model.state == "loaded",
        "state": model.state,
        "last_error": dict(model.last_error) if model.last_error else None,
        "profiles": {name: _profile(name, api) for name in model.profiles},
        "capabilities": None,
        "routing": {"policy": None, "upstream_kind": None},
        "matryoshka_dims": model.matryoshka_dims,
        "pinned": model.pinned,
        "notes": dict(model.notes),
        "classes": list(model.classes),
        "loras": list(model.loras),
        "load_stages_s": dict(model.load_stages_s),
        "available": model.available,
        **{name: value for name, value in known.items() if value is not None},
    }


def _truth(value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise InvalidInput(f"available is {value[:100]!r}; allowed are true and false.", param="available")
    return value.lower() == "true"


def _profile(name: str, api: Api) -> dict[str, Any]:
    return {
        "is_default": name == "default",
        "identity": None,
        "remote_contract_sha256": None,
        "remote_execution_sha256": None,
        "runtime_instance_id": api.instance,
    }
