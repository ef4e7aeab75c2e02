"""`POST /v1/score/{model}`: a query and documents in, a ranking out."""

from __future__ import annotations

from typing import Any

import orjson
from sie_sdk import wire

from sie_core.api.body.negotiation import JSON_TYPE
from sie_core.api.body.reply_body import spent
from sie_core.api.inference.call import Call
from sie_core.api.inference.route import Operation, Route
from sie_core.api.native.ranking import rank
from sie_core.api.native.score_schema import ScoreBody, ScoreReply
from sie_core.api.native.spellings import truncate_of
from sie_core.api.openapi.examples import Example
from sie_core.contracts import InferenceReply, InferenceRequest
from sie_core.logs import request_fields


def inference_request(call: Call, body: ScoreBody) -> InferenceRequest:
    """Make the request to the backend; a document without an id is named by its place.

    Raises:
        InvalidInput: Two spellings of one choice contradict each other, or an item is too large.
    """
    body.check_sizes(call.settings.max_item_text_bytes)
    options = body.options or {}
    return InferenceRequest(
        model=call.model(),
        operation="score",
        items=body.named_items(),
        request_id=request_fields().request_id,
        query=body.query.item(),
        instruction=body.instruction,
        truncate=truncate_of(body.truncate, options, ""),
        options=options,
        deadline=call.deadline,
    )


def score_reply(call: Call, body: ScoreBody, reply: InferenceReply) -> bytes:
    """Write the body: the documents by falling score."""
    written: dict[str, Any] = {
        "model": call.model(),
        "query_id": body.query.id,
        "scores": [
            {"item_id": each.item_id, "score": each.score, "rank": place}
            | ({"truncated": each.truncated} if each.truncated else {})
            for place, each in enumerate(rank(reply))
        ],
        **spent(reply),
    }
    return orjson.dumps(written) if call.reply_type == JSON_TYPE else wire.pack(written)


ROUTE = Route(
    paths=("/v1/score/{model:path}",),
    name="score",
    about="""\
Score documents against a query and rank them, the best first.

Cross-encoders and other rerankers give their own scores, of no promised range. A model that encodes compares
its vectors: multi-vectors by MaxSim, dense and sparse ones by the cosine or dot product, whichever its files
say; `options.output_types` chooses.
""",
    body=ScoreBody,
    reply=ScoreReply,
    operation=Operation(ScoreBody, inference_request, score_reply),
    dialect="native",
    tag="score",
    examples=(
        Example(
            "Two documents for a query",
            {
                "query": {"text": "who makes honey?"},
                "items": [
                    {"id": "bees", "text": "Bees make honey."},
                    {"id": "bakery", "text": "The bakery opens at seven."},
                ],
            },
            needs="score",
        ),
    ),
    msgpack=True,
    waits=False,
)
