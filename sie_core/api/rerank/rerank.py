"""`POST /v1/rerank` and `POST /v2/rerank`: Jina's and Cohere's reranking over `score`."""

from __future__ import annotations

import re
from typing import Any, Final

import orjson

from sie_core.api.fields.lengths import PairLength, length_demands, truncation_of
from sie_core.api.inference.call import Call
from sie_core.api.inference.route import Operation, Route
from sie_core.api.native.item_schema import check_item_size
from sie_core.api.native.ranking import asked_about, rank_documents
from sie_core.api.openapi.examples import MODEL, Example
from sie_core.api.rerank.cut_documents import cut_documents, cut_query
from sie_core.api.rerank.schema import (
    CohereRerankBody,
    CohereRerankReply,
    RankingBody,
    RerankBody,
    RerankReply,
)
from sie_core.contracts import InferenceBackend, InferenceReply, InferenceRequest, InvalidInput, Item
from sie_core.logs import request_fields

_PLACE = re.compile(r"items\[(\d+)\]")


def rerank_request(call: Call, body: RankingBody) -> InferenceRequest:
    """Ask for scores; `__` in a model id of the body that has no `/` stands for `/`.

    The model is not asked about blank documents: they are ranked last.

    Raises:
        InvalidInput: A text is too large, or two numbers of results are asked for.
    """
    if body.top_n and body.top_k and body.top_n != body.top_k:
        raise InvalidInput(f"`top_n` says {body.top_n} and `top_k` {body.top_k}: give one of them.", param="top_n")
    most = call.settings.max_item_text_bytes
    check_item_size(body.query, None, most, "query")
    for place, text in enumerate(body.documents):
        check_item_size(text, None, most, f"documents[{place}]")
    model = call.model(body.model)
    return InferenceRequest(
        model=model if call.path_model is not None or "/" in model else model.replace("__", "/"),
        operation="score",
        items=[Item(text=body.documents[place]) for place in asked_about(body.documents)],
        request_id=request_fields().request_id,
        query=Item(text=body.query),
        instruction=body.instruction,
        truncate=truncation_of(body, {"truncation": {None: None, True: "end", False: "error"}[body.truncation]}),
        demands=length_demands(body),
        options=(body.options or {}) if isinstance(body, RerankBody) else {},
        wishes={"activation": "identity" if body.raw_scores else "sigmoid"},
        deadline=call.deadline,
    )


async def cut_and_infer(backend: InferenceBackend, body: PairLength, asked: InferenceRequest) -> InferenceReply:
    """Ask for scores of texts that are cut to `max_tokens_per_query` and `max_tokens_per_doc`."""
    if body.max_tokens_per_query is not None:
        asked = await cut_query(backend, asked, body.max_tokens_per_query, "max_tokens_per_query")
    if body.max_tokens_per_doc is not None:
        asked = await cut_documents(backend, asked, body.max_tokens_per_doc, "max_tokens_per_doc")
    return await backend.infer(asked)


def field_name(param: str, body: RankingBody) -> str:
    """Name the body's field for a field of the request to the backend."""
    if place := _PLACE.match(param):
        return f"documents[{asked_about(body.documents)[int(place[1])]}]"
    return {"query.text": "query", "options.max_seq_length": "truncate_prompt_tokens"}.get(param, param)


def rerank_reply(call: Call, body: RerankBody, reply: InferenceReply) -> bytes:
    """Write Jina's reply."""
    tokens, results = reply.usage.input_tokens, _results(body, reply)
    return orjson.dumps(
        {
            "object": "list",
            "model": call.model(body.model),
            "results": results,
            **({"data": results} if body.is_voyage_s else {}),
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        }
    )


def cohere_reply(call: Call, body: CohereRerankBody, reply: InferenceReply) -> bytes:
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
        for each in rank_documents(body.documents, reply)[: body.top_n or body.top_k]
    ]


_EXAMPLES: Final = (
    Example(
        "Two documents for a query",
        {
            "model": MODEL,
            "query": "who makes honey?",
            "documents": ["The bakery opens at seven.", "Bees make honey."],
            "return_documents": True,
        },
        needs="score",
    ),
)
ROUTES = (
    Route(
        paths=("/v1/rerank",),
        name="rerank",
        about="""\
Score documents against a query and return them by falling score, in Jina's shape.

A cross-encoder's scores are between 0 and 1, or its logits with `raw_scores`; a model that compares vectors
gives what it finds. A model that is not loaded is waited for, up to `SIE_MODEL_WAIT_S` seconds or those of
`Prefer: wait=N`.
""",
        body=RerankBody,
        reply=RerankReply,
        operation=Operation(RerankBody, rerank_request, rerank_reply, field_name, cut_and_infer),
        dialect="openai",
        tag="openai",
        examples=_EXAMPLES,
    ),
    Route(
        paths=("/v2/rerank",),
        name="rerank_v2",
        about="""\
Score documents against a query and return them by falling score, in Cohere's shape.

A cross-encoder's scores are between 0 and 1; a model that compares vectors gives what it finds. A model that is
not loaded is waited for, up to `SIE_MODEL_WAIT_S` seconds or those of `Prefer: wait=N`.
""",
        body=CohereRerankBody,
        reply=CohereRerankReply,
        operation=Operation(CohereRerankBody, rerank_request, cohere_reply, field_name, cut_and_infer),
        dialect="cohere",
        tag="cohere",
        examples=_EXAMPLES,
    ),
)
