"""`POST /v1/rerank` and `POST /v2/rerank`: Jina's and Cohere's reranking over `score`.

It must not know which backend answers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import orjson
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from sie_core.api.context import Api
from sie_core.api.handler import Shape, answer_shaped
from sie_core.api.http.call_headers import CallHeaders
from sie_core.api.native.item_schema import check_item_size
from sie_core.api.rerank.cut_documents import cut_documents
from sie_core.api.rerank.ranking import asked_about, rank_documents
from sie_core.api.rerank.schema import (
    CohereRerankBody,
    CohereRerankReply,
    RankingBody,
    RerankBody,
    RerankReply,
)
from sie_core.api.route_docs import inference
from sie_core.contracts import InferenceReply, InferenceRequest, Item
from sie_core.logs import request_fields

_PLACE = re.compile(r"items\[(\d+)\]")


def router(api: Api) -> APIRouter:
    """Make the routes."""
    routes = APIRouter(tags=["inference"])
    limit = api.settings.max_item_text_bytes
    jina = Shape(
        RerankBody, lambda body, call: score_request(body, body.options or {}, call, limit), rerank_reply, field_name
    )

    async def cut(body: CohereRerankBody, asked: InferenceRequest) -> InferenceRequest:
        most = body.max_tokens_per_doc
        return asked if most is None else await cut_documents(api.backend, asked, most, "max_tokens_per_doc")

    cohere = Shape(
        CohereRerankBody, lambda body, call: score_request(body, {}, call, limit), cohere_reply, field_name, cut
    )

    @routes.post("/v1/rerank", **inference(RerankBody, RerankReply, msgpack=False, errors="openai"))
    async def rerank(request: Request) -> Response:
        """Score documents against a query and return them by falling score, in Jina's shape.

        A cross-encoder's scores are between 0 and 1, or its logits with `raw_scores`; a model that compares vectors
        gives what it finds. A model that is not loaded is waited for, up to `SIE_MODEL_WAIT_S` seconds or those of
        `Prefer: wait=N`.
        """
        return await answer_shaped(api, request, jina)

    @routes.post("/v2/rerank", **inference(CohereRerankBody, CohereRerankReply, msgpack=False, errors="cohere"))
    async def rerank_v2(request: Request) -> Response:
        """Score documents against a query and return them by falling score, in Cohere's shape.

        A cross-encoder's scores are between 0 and 1; a model that compares vectors gives what it finds. A model that is
        not loaded is waited for, up to `SIE_MODEL_WAIT_S` seconds or those of `Prefer: wait=N`.
        """
        return await answer_shaped(api, request, cohere)

    return routes


def score_request(
    body: RankingBody, options: Mapping[str, Any], call: CallHeaders, max_text_bytes: int
) -> InferenceRequest:
    """Say in the contracts' terms what the client asks for. `__` in a model's id without `/` stands for one.

    The model is not asked about blank documents: they are ranked last.

    Raises:
        InvalidInput: A text is too large.
    """
    check_item_size(body.query, None, max_text_bytes, "query")
    for place, text in enumerate(body.documents):
        check_item_size(text, None, max_text_bytes, f"documents[{place}]")
    return InferenceRequest(
        model=body.model if "/" in body.model else body.model.replace("__", "/"),
        operation="score",
        items=[Item(text=body.documents[place]) for place in asked_about(body.documents)],
        request_id=request_fields().request_id,
        query=Item(text=body.query),
        options=options,
        wishes={"activation": "identity" if body.raw_scores else "sigmoid"},
        deadline=call.deadline,
        load_wait_s=call.load_wait_s or 0,
    )


def field_name(param: str, body: RankingBody) -> str:
    """Name the field of the body that a field of the request was made of."""
    if place := _PLACE.match(param):
        return f"documents[{asked_about(body.documents)[int(place[1])]}]"
    return "query" if param == "query.text" else param


def rerank_reply(body: RerankBody, reply: InferenceReply) -> bytes:
    """Write Jina's reply."""
    tokens = reply.usage.input_tokens
    return orjson.dumps(
        {
            "object": "list",
            "model": body.model,
            "results": _results(body, reply),
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        }
    )


def cohere_reply(body: CohereRerankBody, reply: InferenceReply) -> bytes:
    """Write Cohere's reply."""
    return orjson.dumps(
        {
            "id": request_fields().request_id,
            "results": _results(body, reply),
            "meta": {"api_version": {"version": "2"}, "tokens": {"input_tokens": reply.usage.input_tokens}},
        }
    )


def _results(body: RankingBody, reply: InferenceReply) -> list[dict[str, Any]]:
    return [
        {"index": each.index, "relevance_score": each.score}
        | ({"document": {"text": body.documents[each.index]}} if body.return_documents else {})
        for each in rank_documents(body.documents, reply)[: body.top_n]
    ]
