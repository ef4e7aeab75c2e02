"""Vectors in the shape of text-embeddings-inference (TEI), over `encode`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, Protocol

from sie_core.api.body.embedding_types import of_unit_length
from sie_core.api.body.json_body import Entries, write_json
from sie_core.api.body.pieces import Content
from sie_core.api.body.reply_body import read_item, size_of
from sie_core.api.inference.call import Call
from sie_core.api.inference.route import Operation, infer_token_ids
from sie_core.api.native.spellings import prompt_named
from sie_core.api.openai.embedding_input import param_of, read_input
from sie_core.api.tei.schema import Direction, TeiEmbedBody, TeiEncodeBody
from sie_core.contracts import InferenceReply, InferenceRequest, InvalidInput, Item, OutputType, Truncate
from sie_core.logs import request_fields

_TOKEN_IDS: Final = (
    "`inputs` holds token ids, and this model reads texts; send those, or set accept_token_ids in its config."
)
_ENDS: Final[dict[str, Truncate]] = {"left": "start", "right": "end"}


class Wanted(Protocol):
    """The fields of a body that say how texts are embedded."""

    prompt_name: str | None
    truncate: bool | None
    truncation_direction: Direction | None


def vectors_operation(output: OutputType | None, schema: type[TeiEncodeBody] = TeiEmbedBody) -> Operation[Any]:
    """Make the operation that gives vectors of one type; None is the type that the model gives by default."""
    return Operation(
        schema,
        partial(vectors_request, output),
        partial(vectors_reply, output),
        field_name,
        infer_token_ids(_TOKEN_IDS),
    )


def vectors_request(output: OutputType | None, call: Call, body: TeiEncodeBody) -> InferenceRequest:
    """Ask for vectors of the inputs.

    Raises:
        InvalidInput: An input is wrong.
    """
    items = read_input(body.inputs, call.settings.max_item_text_bytes, "inputs")
    asked = encode_request(call.model(body.model), call, items, output, body)
    if not isinstance(body, TeiEmbedBody):
        return asked
    demands = asked.demands if body.normalize is not False else {**asked.demands, "normalize": False}
    return replace(asked, dimensions=body.dimensions, demands=demands)


def vectors_reply(output: OutputType | None, call: Call, body: TeiEncodeBody, reply: InferenceReply) -> Content:
    """Write the vectors; dense ones get unit length, unless the client wants them as they are.

    Raises:
        InvalidInput: The model gives vectors of another type.
    """
    unit_length = isinstance(body, TeiEmbedBody) and body.normalize is not False
    return write_json(Entries(_vectors(reply, output, call.model(body.model), unit_length)), size_of(reply))


def _vectors(reply: InferenceReply, output: OutputType | None, model: str, unit_length: bool) -> Iterator[object]:
    for packed in reply.items:
        item = read_item(packed)
        if "dense" in item:
            vector = item["dense"]["values"]
            yield of_unit_length(vector) if unit_length else vector
        elif "sparse" in item:
            sparse = item["sparse"]
            pairs = zip(sparse["indices"].tolist(), sparse["values"].tolist(), strict=True)
            yield [{"index": index, "value": value} for index, value in pairs]
        elif output == "multivector":
            yield item["multivector"]["values"]
        else:
            raise InvalidInput(f"{model} gives {', '.join(item)}, which this route has not.", param="model")


def encode_request(
    model: str, call: Call, items: Sequence[Item], output: OutputType | None, wanted: Wanted
) -> InferenceRequest:
    """Ask for float32 vectors, which can be scaled to unit length; no `output` means the model's default."""
    prompt = prompt_named(wanted.prompt_name)
    return InferenceRequest(
        model=model,
        operation="encode",
        items=items,
        request_id=request_fields().request_id,
        output_types=None if output is None else (output,),
        output_dtype="float32",
        input_type=prompt.input_type,
        truncate=truncation(wanted.truncate, wanted.truncation_direction),
        wishes=prompt.wishes,
        demands=prompt.demands,
        deadline=call.deadline,
    )


def truncation(truncate: bool | None, direction: str | None) -> Truncate | None:
    """Say where texts that are too long are cut; None leaves it to the model."""
    if truncate is False:
        return "error"
    if direction is None:
        return "end" if truncate else None
    return _ENDS[direction.lower()]


def field_name(param: str, body: TeiEncodeBody) -> str:
    """Name the body's field for a field of the request to the backend."""
    if param.startswith("items"):
        return param_of(param, body.inputs, "inputs")
    return {"output_types": "model", "options.normalize": "normalize", "options.prompt_name": "prompt_name"}.get(
        param, param
    )
