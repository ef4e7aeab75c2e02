"""`POST /v1/encode/{model}`: items in, their vectors out. It must not know which backend answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from fastapi import APIRouter
from sie_sdk import wire
from starlette.requests import Request
from starlette.responses import Response

from sie_core.api.answering import answer
from sie_core.api.body import decode_body, read_body
from sie_core.api.call_headers import CallHeaders, read_call_headers
from sie_core.api.context import Api
from sie_core.api.encode_schema import EncodeBody, EncodeReply, ParamsBody
from sie_core.api.errors import renamed
from sie_core.api.item_schema import check_item_size
from sie_core.api.json_list import dump_with_list
from sie_core.api.model_id import check_model_id
from sie_core.api.negotiation import JSON_TYPE, body_format, reply_type
from sie_core.api.operations import inference
from sie_core.api.reply_headers import reply_headers
from sie_core.contracts import InferenceError, InferenceReply, InferenceRequest, InputType, InvalidInput, Truncate
from sie_core.logs import request_fields

Value = TypeVar("Value")

_AS_INPUT_TYPE: Final[Mapping[bool | None, InputType]] = {True: "query", False: "document"}
_AS_TRUNCATE: Final[Mapping[str | None, Truncate]] = {"truncate_text": "end", "error": "error"}


def router(api: Api) -> APIRouter:
    """Make the route."""
    routes = APIRouter(tags=["inference"])

    @routes.post("/v1/encode/{model:path}", **inference(EncodeBody, EncodeReply, msgpack=True))
    async def encode(request: Request, model: str) -> Response:
        """Encode items with a model: one map of outputs an item, in the order sent.

        A model that is not loaded answers 503 `MODEL_LOADING` at once and starts loading; `Prefer: wait=N` waits up
        to N seconds for it. `X-SIE-Timeout-Ms` sets a deadline for the whole call.
        """
        call = read_call_headers(request.headers, api.machine_profile)
        given = body_format(request.headers.get("content-type", ""))
        wanted = reply_type(request.headers.get("accept", ""), given)
        check_model_id(model)
        data = await read_body(request, api.settings.max_request_body_bytes, call.deadline)

        def read() -> InferenceRequest:
            body = decode_body(data, given, EncodeBody)
            for place, item in enumerate(body.items):
                check_item_size(item.text, item.metadata, api.settings.max_item_text_bytes, f"items[{place}]")
            return inference_request(model, body, call)

        asked = await api.beside.run(len(data), read)
        try:
            reply = await answer(api.backend, api.gate, asked, request.receive)
        except InferenceError as error:
            if error.param and error.param.partition(".")[0] in ParamsBody.model_fields:
                raise renamed(error, f"params.{error.param}") from error
            raise
        content = await api.beside.run(sum(map(len, reply.items)), lambda: encode_reply(model, reply, wanted))
        return Response(content, 200, reply_headers(reply, call), wanted)

    return routes


def inference_request(model: str, body: EncodeBody, call: CallHeaders) -> InferenceRequest:
    """Say in the contracts' terms what the client asks for.

    Raises:
        InvalidInput: Two spellings of one choice contradict each other.
    """
    params = body.params or ParamsBody()
    options = params.options or {}
    return InferenceRequest(
        model=model,
        operation="encode",
        items=[item.item() for item in body.items],
        request_id=request_fields().request_id,
        output_types=tuple(params.output_types) if params.output_types else None,
        output_dtype=params.output_dtype,
        input_type=_input_type(params, options),
        instruction=params.instruction,
        truncate=_truncate(params, options),
        dimensions=params.dimensions,
        options=options,
        deadline=call.deadline,
        load_wait_s=call.load_wait_s or 0,
    )


def _input_type(params: ParamsBody, options: Mapping[str, Any]) -> InputType | None:
    """Find the one input type that `input_type`, `is_query` and `options.is_query` agree on."""
    spellings = {
        "params.input_type": params.input_type,
        "params.is_query": _AS_INPUT_TYPE.get(params.is_query),
        "params.options.is_query": _AS_INPUT_TYPE.get(_plain(options.get("is_query"), bool)),
    }
    return _agreed(spellings)


def _truncate(params: ParamsBody, options: Mapping[str, Any]) -> Truncate | None:
    """Find the one choice that `truncate` and `options.overflow_policy` agree on."""
    spellings = {
        "params.truncate": params.truncate,
        "params.options.overflow_policy": _AS_TRUNCATE.get(_plain(options.get("overflow_policy"), str)),
    }
    return _agreed(spellings)


def _plain(value: Any, kind: type[Value]) -> Value | None:
    """Return a `value` of that very type; the backend refuses any other."""
    return value if type(value) is kind else None


def _agreed(spellings: Mapping[str, Value | None]) -> Value | None:
    given = {name: value for name, value in spellings.items() if value is not None}
    if len(set(given.values())) > 1:
        said = " and ".join(f"`{name}` says {value!r}" for name, value in given.items())
        raise InvalidInput(f"{said}: give one of them.", param=next(iter(given)))
    return next(iter(given.values()), None)


def encode_reply(model: str, reply: InferenceReply, media_type: str) -> bytes:
    """Write the body: the backend's encoded items unread in msgpack, decoded in JSON."""
    timing = reply.timing
    usage = {"input_tokens": reply.usage.input_tokens}
    if reply.usage.images:
        usage["images"] = reply.usage.images
    head: dict[str, Any] = {
        "model": model,
        "timing": {
            "total_ms": round(timing.total_ms, 3),
            "queue_ms": round(timing.queue_ms, 3),
            "tokenization_ms": round(timing.tokenization_ms, 3),
            "inference_ms": round(timing.inference_ms, 3),
            "postprocessing_ms": None if timing.postprocessing_ms is None else round(timing.postprocessing_ms, 3),
        },
        "usage": usage,
    }
    if media_type != JSON_TYPE:
        return wire.pack_with_items(head, reply.items)
    return dump_with_list({**head, "items": None}, "items", map(wire.unpack, reply.items))
