"""Ranks in the shape of text-embeddings-inference (TEI), of `texts` or, as other servers take them, of `documents`."""

from __future__ import annotations

import re
from typing import Final

import orjson

from sie_core.api.fields.lengths import length_demands, truncation_of
from sie_core.api.inference.call import Call
from sie_core.api.inference.route import Operation
from sie_core.api.native.item_schema import check_item_size
from sie_core.api.native.ranking import asked_about, rank_documents
from sie_core.api.rerank.rerank import cut_and_infer, rerank_reply, rerank_request
from sie_core.api.rerank.rerank import field_name as documents_field_name
from sie_core.api.tei.encode import truncation
from sie_core.api.tei.schema import TeiDocumentsBody, TeiRerankBody
from sie_core.contracts import InferenceReply, InferenceRequest, Item
from sie_core.logs import request_fields

_PLACE = re.compile(r"items\[(\d+)\]")


def ranks_request(call: Call, body: TeiRerankBody) -> InferenceRequest:
    """Ask for scores. The model is not asked about blank texts.

    Raises:
        InvalidInput: A text is too large.
    """
    most = call.settings.max_item_text_bytes
    check_item_size(body.query, None, most, "query")
    for place, text in enumerate(body.texts):
        check_item_size(text, None, most, f"texts[{place}]")
    return InferenceRequest(
        model=call.model(body.model),
        operation="score",
        items=[Item(text=body.texts[place]) for place in asked_about(body.texts)],
        request_id=request_fields().request_id,
        query=Item(text=body.query),
        instruction=body.instruction,
        truncate=truncation_of(body, {"truncate": truncation(body.truncate, body.truncation_direction)}),
        demands=length_demands(body),
        wishes={"activation": "identity" if body.raw_scores else "sigmoid"},
        deadline=call.deadline,
    )


def ranks_reply(call: Call, body: TeiRerankBody, reply: InferenceReply) -> bytes:
    """Write the ranks, blank texts last."""
    ranks = [
        {"index": each.index, "score": each.score} | ({"text": body.texts[each.index]} if body.return_text else {})
        for each in rank_documents(body.texts, reply)
    ]
    return orjson.dumps(ranks)


def field_name(param: str, body: TeiRerankBody) -> str:
    """Name the body's field for a field of the request to the backend."""
    if place := _PLACE.match(param):
        return f"texts[{asked_about(body.texts)[int(place[1])]}]"
    return {"query.text": "query", "options.max_seq_length": "truncate_prompt_tokens"}.get(param, param)


RANK_TEXTS: Final = Operation(TeiRerankBody, ranks_request, ranks_reply, field_name, cut_and_infer)
RANK_DOCUMENTS: Final = Operation(
    TeiDocumentsBody, rerank_request, rerank_reply, documents_field_name, cut_and_infer, dialect="openai"
)
"""Answers `documents` as `/v1/rerank` does."""
