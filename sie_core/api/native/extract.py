"""`POST /v1/extract/{model}`: items in, what they say out, as data. It must not know which backend answers."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from sie_core.api.body.reply_body import items_reply
from sie_core.api.context import Api
from sie_core.api.http.call_headers import CallHeaders
from sie_core.api.http.model_id import ModelId
from sie_core.api.native.extract_schema import ExtractBody, ExtractParamsBody, ExtractReply
from sie_core.api.native.native import answer_native
from sie_core.api.native.spellings import truncate_of
from sie_core.api.route_docs import inference
from sie_core.contracts import InferenceReply, InferenceRequest
from sie_core.logs import request_fields


def router(api: Api) -> APIRouter:
    """Make the route."""
    routes = APIRouter(tags=["inference"])

    @routes.post("/v1/extract/{model:path}", **inference(ExtractBody, ExtractReply, msgpack=True))
    async def extract(request: Request, model: ModelId) -> Response:
        """Extract entities, relations, classifications, objects or data from items, in the order sent.

        `start` and `end` of an entity are offsets into the item's text in characters (Unicode code points), the end
        exclusive.
        """
        return await answer_native(api, request, model, ExtractBody, inference_request, extract_reply)

    return routes


def inference_request(model: str, body: ExtractBody, call: CallHeaders) -> InferenceRequest:
    """Say in the contracts' terms what the client asks for; an item without an id is called by its place.

    Raises:
        InvalidInput: Two spellings of one choice contradict each other.
    """
    params = body.params or ExtractParamsBody()
    options = params.options or {}
    return InferenceRequest(
        model=model,
        operation="extract",
        items=body.named_items(),
        request_id=request_fields().request_id,
        labels=tuple(params.labels or ()),
        output_schema=params.output_schema,
        instruction=params.instruction,
        truncate=truncate_of(params.truncate, options, "params."),
        options=options,
        deadline=call.deadline,
        load_wait_s=call.load_wait_s or 0,
    )


def extract_reply(asked: InferenceRequest, reply: InferenceReply, media_type: str) -> bytes:
    """Write the body: the backend's encoded items."""
    return items_reply(asked.model, reply, media_type)
