"""`POST /v1/extract/{model}`: items in, entities, relations, classes, objects or data out."""

from __future__ import annotations

from sie_core.api.body.pieces import Content
from sie_core.api.body.reply_body import items_reply
from sie_core.api.inference.call import Call
from sie_core.api.inference.route import Operation, Route
from sie_core.api.native.extract_schema import ExtractBody, ExtractParamsBody, ExtractReply
from sie_core.api.native.item_schema import params_field_name
from sie_core.api.native.spellings import truncate_of
from sie_core.api.openapi.examples import Example
from sie_core.contracts import InferenceReply, InferenceRequest
from sie_core.logs import request_fields


def inference_request(call: Call, body: ExtractBody) -> InferenceRequest:
    """Make the request to the backend; an item without an id is named by its place.

    Raises:
        InvalidInput: Two spellings of one choice contradict each other, or an item is too large.
    """
    body.check_sizes(call.settings.max_item_text_bytes)
    params = body.params or ExtractParamsBody()
    options = params.options or {}
    return InferenceRequest(
        model=call.model(),
        operation="extract",
        items=body.named_items(),
        request_id=request_fields().request_id,
        labels=tuple(params.labels or ()),
        output_schema=params.output_schema,
        instruction=params.instruction,
        truncate=truncate_of(params.truncate, options, "params."),
        options=options,
        deadline=call.deadline,
    )


def extract_reply(call: Call, body: ExtractBody, reply: InferenceReply) -> Content:
    """Write the body: the backend's encoded items."""
    return items_reply(call.model(), reply, call.reply_type)


ROUTE = Route(
    paths=("/v1/extract/{model:path}",),
    name="extract",
    about="""\
Extract entities, relations, classifications, objects or data from items, in the order sent.

`start` and `end` of an entity are offsets into the item's text in characters (Unicode code points), the end
exclusive.
""",
    body=ExtractBody,
    reply=ExtractReply,
    operation=Operation(ExtractBody, inference_request, extract_reply, params_field_name),
    dialect="native",
    tag="extract",
    examples=(
        Example(
            "People and places of a text",
            {
                "items": [{"text": "Ada Lovelace wrote to Charles Babbage in London."}],
                "params": {"labels": ["person", "city"]},
            },
            needs="extract",
        ),
    ),
    msgpack=True,
    waits=False,
)
