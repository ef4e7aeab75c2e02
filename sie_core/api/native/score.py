"""`POST /v1/score/{model}`: a query and documents in, a ranking out. It must not know which backend answers."""

from __future__ import annotations

from typing import Any

import orjson
from fastapi import APIRouter
from sie_sdk import wire
from starlette.requests import Request
from starlette.responses import Response

from sie_core.api.body.negotiation import JSON_TYPE
from sie_core.api.body.reply_body import spent
from sie_core.api.context import Api
from sie_core.api.http.call_headers import CallHeaders
from sie_core.api.http.model_id import ModelId
from sie_core.api.native.native import answer_native
from sie_core.api.native.score_schema import ScoreBody, ScoreReply
from sie_core.api.native.spellings import truncate_of
from sie_core.api.rerank.ranking import rank
from sie_core.api.route_docs import inference
from sie_core.contracts import InferenceReply, InferenceRequest
from sie_core.logs import request_fields


def router(api: Api) -> APIRouter:
    """Make the route."""
    routes = APIRouter(tags=["inference"])

    @routes.post("/v1/score/{model:path}", **inference(ScoreBody, ScoreReply, msgpack=True))
    async def score(request: Request, model: ModelId) -> Response:
        """Score documents against a query and rank them, the best first.

        Cross-encoders and other rerankers give their own scores, of no promised range. A model that encodes compares
        its vectors: multi-vectors by MaxSim, dense and sparse ones by the cosine or dot product, whichever its files
        say; `options.output_types` chooses.
        """
        return await answer_native(api, request, model, ScoreBody, inference_request, score_reply)

    return routes


def inference_request(model: str, body: ScoreBody, call: CallHeaders) -> InferenceRequest:
    """Say in the contracts' terms what the client asks for; a document without an id is called by its place.

    Raises:
        InvalidInput: Two spellings of one choice contradict each other.
    """
    options = body.options or {}
    return InferenceRequest(
        model=model,
        operation="score",
        items=body.named_items(),
        request_id=request_fields().request_id,
        query=body.query.item(),
        instruction=body.instruction,
        truncate=truncate_of(body.truncate, options, ""),
        options=options,
        deadline=call.deadline,
        load_wait_s=call.load_wait_s or 0,
    )


def score_reply(asked: InferenceRequest, reply: InferenceReply, media_type: str) -> bytes:
    """Write the body: the documents by falling score."""
    body: dict[str, Any] = {
        "model": asked.model,
        "query_id": asked.query.id if asked.query else None,
        "scores": [
            {"item_id": each.item_id, "score": each.score, "rank": place}
            | ({"truncated": each.truncated} if each.truncated else {})
            for place, each in enumerate(rank(reply))
        ],
        **spent(reply),
    }
    return orjson.dumps(body) if media_type == JSON_TYPE else wire.pack(body)
