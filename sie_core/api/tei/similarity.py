"""The similarity of texts in the shape of text-embeddings-inference (TEI), over `encode`."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, cast

import numpy as np
import orjson
from pydantic import FailFast, Field
from sie_sdk import wire

from sie_core.api.body.embedding_types import of_unit_length
from sie_core.api.fields.body import DialectBody
from sie_core.api.http.limits import MAX_EMBEDDING_INPUTS
from sie_core.api.http.model_id import ModelId
from sie_core.api.inference.call import Call
from sie_core.api.inference.route import Operation
from sie_core.api.native.item_schema import check_item_size
from sie_core.api.schema import RootSchema
from sie_core.api.tei.encode import encode_request
from sie_core.api.tei.schema import DIRECTION, MODEL, PROMPT_NAME, TRUNCATE, Direction
from sie_core.contracts import InferenceReply, InferenceRequest, Item

_PLACE: Final = re.compile(r"items\[(\d+)\]")


class TeiSimilarityInputs(DialectBody):
    """A text, and those it is compared with."""

    source_sentence: str
    sentences: Annotated[list[str], FailFast()] = Field(min_length=1, max_length=MAX_EMBEDDING_INPUTS - 1)


class TeiSimilarityParameters(DialectBody):
    """How texts are embedded."""

    prompt_name: str | None = PROMPT_NAME
    truncate: bool | None = TRUNCATE
    truncation_direction: Direction | None = DIRECTION


class TeiSimilarityBody(DialectBody):
    """Texts to compare. A field that is null counts as absent."""

    model: ModelId | None = MODEL
    inputs: TeiSimilarityInputs
    parameters: TeiSimilarityParameters | None = None


class TeiSimilarities(RootSchema[list[float]]):
    """The cosine between the source's vector and that of each sentence, in the order of the sentences."""


def similarity_request(call: Call, body: TeiSimilarityBody) -> InferenceRequest:
    """Ask for the vectors of all texts; the source is the first item.

    Raises:
        InvalidInput: A text is too large.
    """
    texts = [body.inputs.source_sentence, *body.inputs.sentences]
    for place, text in enumerate(texts):
        check_item_size(text, None, call.settings.max_item_text_bytes, _name(place))
    parameters = body.parameters or TeiSimilarityParameters()
    return encode_request(call.model(body.model), call, [Item(text=text) for text in texts], "dense", parameters)


def similarity_reply(call: Call, body: TeiSimilarityBody, reply: InferenceReply) -> bytes:
    """Write the cosines."""
    items = (cast("dict[str, Any]", wire.unpack(item)) for item in reply.items)
    source, *others = (of_unit_length(item["dense"]["values"]) for item in items)
    return orjson.dumps([float(np.dot(source, other)) for other in others])


def field_name(param: str, body: TeiSimilarityBody) -> str:
    """Name the body's field for a field of the request to the backend."""
    if place := _PLACE.match(param):
        return _name(int(place[1]))
    return {"output_types": "model", "options.prompt_name": "parameters.prompt_name"}.get(param, param)


def _name(place: int) -> str:
    return "inputs.source_sentence" if place == 0 else f"inputs.sentences[{place - 1}]"


SIMILARITY: Final = Operation(TeiSimilarityBody, similarity_request, similarity_reply, field_name)
