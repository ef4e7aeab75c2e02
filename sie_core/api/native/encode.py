"""`POST /v1/encode/{model}`: items in, their vectors out. It must not know which backend answers."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from sie_core.api.body.reply_body import items_reply
from sie_core.api.context import Api
from sie_core.api.http.call_headers import CallHeaders
from sie_core.api.http.model_id import ModelId
from sie_core.api.native.encode_schema import EncodeBody, EncodeReply, ParamsBody
from sie_core.api.native.native import answer_native
from sie_core.api.native.spellings import input_type_of, truncate_of
from sie_core.api.route_docs import inference
from sie_core.contracts import InferenceReply, InferenceRequest
from sie_core.logs import request_fields


def router(api: Api) -> APIRouter:
    """Make the route."""
    routes = APIRouter(tags=["inference"])

    @routes.post("/v1/encode/{model:path}", **inference(EncodeBody, EncodeReply, msgpack=True))
    async def encode(request: Request, model: ModelId) -> Response:
        """Encode items with a model: one map of outputs an item, in the order sent.

        A model that is not loaded answers 503 `MODEL_LOADING` at once and starts loading; `Prefer: wait=N` waits up
        to N seconds for it. `X-SIE-Timeout-Ms` sets a deadline for the whole call.
        """
        return await answer_native(api, request, model, EncodeBody, inference_request, encode_reply)

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
        input_type=input_type_of(params.input_type, params.is_query, options, "params."),
        instruction=params.instruction,
        truncate=truncate_of(params.truncate, options, "params."),
        dimensions=params.dimensions,
        options=options,
        deadline=call.deadline,
        load_wait_s=call.load_wait_s or 0,
    )


def encode_reply(asked: InferenceRequest, reply: InferenceReply, media_type: str) -> bytes:
    """Write the body: the backend's encoded items."""
    return items_reply(asked.model, reply, media_type)
