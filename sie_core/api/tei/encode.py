"""Vectors in the shape of text-embeddings-inference (TEI): from a body to `encode`, and back.

It must not know paths or the backend.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, cast

from sie_sdk import wire

from sie_core.api.body.json_list import dump_list
from sie_core.api.embedding_types import of_unit_length
from sie_core.api.handler import Shape
from sie_core.api.http.call_headers import CallHeaders
from sie_core.api.openai.embedding_input import param_of, read_input
from sie_core.api.tei.schema import Direction, TeiEmbedAllBody, TeiEmbedBody, TeiEncodeBody, TeiSparseBody
from sie_core.contracts import InferenceReply, InferenceRequest, InputType, InvalidInput, Item, OutputType, Truncate
from sie_core.logs import request_fields

_TOKEN_IDS: Final = (
    "`inputs` holds token ids, and this model reads texts; send those, or set accept_token_ids in its config."
)
_INPUT_TYPES: Final[dict[str | None, InputType]] = {"query": "query", "document": "document"}
_ENDS: Final[dict[str, Truncate]] = {"left": "start", "right": "end"}


_SCHEMAS: Final[dict[OutputType | None, type[TeiEncodeBody]]] = {
    "sparse": TeiSparseBody,
    "multivector": TeiEmbedAllBody,
}


class Wanted(Protocol):
    """The fields of a body that say how texts are embedded."""

    prompt_name: str | None
    truncate: bool | None
    truncation_direction: Direction | None


@dataclass(frozen=True, slots=True)
class Encoding:
    """Requests for vectors of one model.

    Args:
        model: Its id.
        output: What is asked for; None for whatever the model gives first.
        max_text_bytes: The most bytes of an input.
    """

    model: str
    output: OutputType | None
    max_text_bytes: int

    def shape(self) -> Shape[Any]:
        """Describe them."""
        schema = _SCHEMAS.get(self.output, TeiEmbedBody)
        return Shape(schema, self.ask, self.write, field_name, token_ids=_TOKEN_IDS)

    def ask(self, body: TeiEncodeBody, call: CallHeaders) -> InferenceRequest:
        """Say in the contracts' terms what a client asks for.

        Raises:
            InvalidInput: An input is wrong.
        """
        asked = encode_request(
            self.model, read_input(body.inputs, self.max_text_bytes, "inputs"), self.output, body, call
        )
        if not isinstance(body, TeiEmbedBody):
            return asked
        demands = asked.demands if body.normalize is not False else {**asked.demands, "normalize": False}
        return replace(asked, dimensions=body.dimensions, demands=demands)

    def write(self, body: TeiEncodeBody, reply: InferenceReply) -> bytes:
        """Write the vectors; dense ones get unit length, unless the client wants them as they are.

        Raises:
            InvalidInput: The model gives none of these kinds.
        """
        unit_length = isinstance(body, TeiEmbedBody) and body.normalize is not False
        return dump_list(self._vectors(reply, unit_length))

    def _vectors(self, reply: InferenceReply, unit_length: bool) -> Iterator[object]:
        for packed in reply.items:
            item = cast("dict[str, Any]", wire.unpack(packed))
            if "dense" in item:
                vector = item["dense"]["values"]
                yield of_unit_length(vector) if unit_length else vector
            elif "sparse" in item:
                sparse = item["sparse"]
                pairs = zip(sparse["indices"].tolist(), sparse["values"].tolist(), strict=True)
                yield [{"index": index, "value": value} for index, value in pairs]
            elif self.output == "multivector":
                yield item["multivector"]["values"]
            else:
                raise InvalidInput(f"{self.model} gives {', '.join(item)}, which this route has not.", param="model")


def encode_request(
    model: str, items: Sequence[Item], output: OutputType | None, wanted: Wanted, call: CallHeaders
) -> InferenceRequest:
    """Ask for vectors of `items`: float32, so that they can be given unit length. No `output` is the model's first."""
    input_type = _INPUT_TYPES.get(wanted.prompt_name)
    by_name = wanted.prompt_name is not None and input_type is None
    return InferenceRequest(
        model=model,
        operation="encode",
        items=items,
        request_id=request_fields().request_id,
        output_types=None if output is None else (output,),
        output_dtype="float32",
        input_type=input_type,
        truncate=truncation(wanted.truncate, wanted.truncation_direction),
        demands={"prompt_name": wanted.prompt_name} if by_name else {},
        deadline=call.deadline,
        load_wait_s=call.load_wait_s or 0,
    )


def truncation(truncate: bool | None, direction: str | None) -> Truncate | None:
    """Say what becomes of texts that are too long; None leaves it to the model."""
    if truncate is False:
        return "error"
    if direction is None:
        return "end" if truncate else None
    return _ENDS[direction.lower()]


def field_name(param: str, body: TeiEncodeBody) -> str:
    """Name the field of the body that a field of the request was made of."""
    if param.startswith("items"):
        return param_of(param, body.inputs, "inputs")
    return {"output_types": "model", "options.normalize": "normalize", "options.prompt_name": "prompt_name"}.get(
        param, param
    )
