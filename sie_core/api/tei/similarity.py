"""How alike texts are, in the shape of text-embeddings-inference (TEI): from a body to `encode`, and back.

It must not know paths or the backend.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any, Final, cast

import numpy as np
import orjson
from pydantic import BaseModel, FailFast, Field, RootModel
from sie_sdk import wire

from sie_core.api.embedding_types import of_unit_length
from sie_core.api.handler import Shape
from sie_core.api.http.call_headers import CallHeaders
from sie_core.api.http.limits import MAX_EMBEDDING_INPUTS
from sie_core.api.native.item_schema import STRICT, check_item_size
from sie_core.api.tei.encode import encode_request
from sie_core.api.tei.schema import DIRECTION, PROMPT_NAME, TRUNCATE, Direction
from sie_core.contracts import InferenceReply, InferenceRequest, Item

_PLACE: Final = re.compile(r"items\[(\d+)\]")


class TeiSimilarityInputs(BaseModel):
    """A text, and those it is compared with."""

    model_config = STRICT

    source_sentence: str
    sentences: Annotated[list[str], FailFast()] = Field(min_length=1, max_length=MAX_EMBEDDING_INPUTS - 1)


class TeiSimilarityParameters(BaseModel):
    """How texts are embedded."""

    model_config = STRICT

    prompt_name: str | None = PROMPT_NAME
    truncate: bool | None = TRUNCATE
    truncation_direction: Direction | None = DIRECTION


class TeiSimilarityBody(BaseModel):
    """Texts to compare. A field that is null counts as absent."""

    model_config = STRICT

    inputs: TeiSimilarityInputs
    parameters: TeiSimilarityParameters | None = None


class TeiSimilarities(RootModel[list[float]]):
    """The cosine between the source's vector and that of each sentence, in the order of the sentences."""


@dataclass(frozen=True, slots=True)
class Similarity:
    """Requests to compare texts by the dense vectors of one model.

    Args:
        model: Its id.
        max_text_bytes: The most bytes of a text.
    """

    model: str
    max_text_bytes: int

    def shape(self) -> Shape[Any]:
        """Describe them."""
        return Shape(TeiSimilarityBody, self.ask, write, field_name)

    def ask(self, body: TeiSimilarityBody, call: CallHeaders) -> InferenceRequest:
        """Say in the contracts' terms what a client asks for: the source is the first item.

        Raises:
            InvalidInput: A text is too large.
        """
        texts = [body.inputs.source_sentence, *body.inputs.sentences]
        for place, text in enumerate(texts):
            check_item_size(text, None, self.max_text_bytes, _name(place))
        parameters = body.parameters or TeiSimilarityParameters()
        return encode_request(self.model, [Item(text=text) for text in texts], "dense", parameters, call)


def write(body: TeiSimilarityBody, reply: InferenceReply) -> bytes:
    """Write the cosines."""
    items = (cast("dict[str, Any]", wire.unpack(item)) for item in reply.items)
    source, *others = (of_unit_length(item["dense"]["values"]) for item in items)
    return orjson.dumps([float(np.dot(source, other)) for other in others])


def field_name(param: str, body: TeiSimilarityBody) -> str:
    """Name the field of the body that a field of the request was made of."""
    if place := _PLACE.match(param):
        return _name(int(place[1]))
    return {"output_types": "model", "options.prompt_name": "parameters.prompt_name"}.get(param, param)


def _name(place: int) -> str:
    return "inputs.source_sentence" if place == 0 else f"inputs.sentences[{place - 1}]"
