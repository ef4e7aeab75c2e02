"""`POST /v1/encode/{model}`: items in, their vectors out."""

from __future__ import annotations

from sie_core.api.body.pieces import Content
from sie_core.api.body.reply_body import items_reply
from sie_core.api.inference.call import Call
from sie_core.api.inference.route import Operation, Route, infer_token_ids
from sie_core.api.native.encode_schema import EncodeBody, EncodeReply, ParamsBody
from sie_core.api.native.item_schema import params_field_name
from sie_core.api.native.spellings import input_type_of, truncate_of
from sie_core.api.openapi.examples import Example
from sie_core.contracts import InferenceReply, InferenceRequest
from sie_core.logs import request_fields

_FOREIGN_TOKEN_IDS = (
    "An item has `token_ids`, and this model reads texts: send `text`, or set accept_token_ids in its config."
)


def inference_request(call: Call, body: EncodeBody) -> InferenceRequest:
    """Make the request to the backend.

    Raises:
        InvalidInput: Two spellings of one choice contradict each other, or an item is too large.
    """
    body.check_sizes(call.settings.max_item_text_bytes)
    params = body.params or ParamsBody()
    options = params.options or {}
    return InferenceRequest(
        model=call.model(),
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
    )


def encode_reply(call: Call, body: EncodeBody, reply: InferenceReply) -> Content:
    """Write the body: the backend's encoded items."""
    return items_reply(call.model(), reply, call.reply_type)


ROUTE = Route(
    paths=("/v1/encode/{model:path}",),
    name="encode",
    about="""\
Encode items with a model: one map of outputs an item, in the order sent.

A model that is not loaded starts loading. A load that is predicted to end within `SIE_NATIVE_LOAD_WAIT_S` is waited
for, any other answers 503 `MODEL_LOADING` with a `Retry-After`; `Prefer: wait=N` waits up to N seconds for any.
`X-SIE-Timeout-Ms` sets a deadline for the whole call.
""",
    body=EncodeBody,
    reply=EncodeReply,
    operation=Operation(
        EncodeBody, inference_request, encode_reply, params_field_name, infer_token_ids(_FOREIGN_TOKEN_IDS)
    ),
    dialect="native",
    tag="encode",
    examples=(
        Example(
            "Vectors of two texts", {"items": [{"text": "Bees make honey."}, {"text": "The bakery opens at seven."}]}
        ),
        Example(
            "A query, in eight bits a number",
            {"items": [{"text": "who makes honey?"}], "params": {"input_type": "query", "output_dtype": "int8"}},
        ),
        Example(
            "A sparse vector",
            {"items": [{"text": "Bees make honey."}], "params": {"output_types": ["sparse"]}},
            needs="sparse",
        ),
        Example(
            "A vector a token",
            {"items": [{"text": "Bees make honey."}], "params": {"output_types": ["multivector"]}},
            needs="multivector",
        ),
    ),
    msgpack=True,
    waits=False,
)
