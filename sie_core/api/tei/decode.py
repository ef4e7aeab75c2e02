"""`/decode` in the shape of text-embeddings-inference (TEI): the texts of token ids, by the model's tokenizer."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Annotated, Any, Final

import orjson
from pydantic import Field, WithJsonSchema

from sie_core.api.body.body import kind_of
from sie_core.api.fields.body import DialectBody
from sie_core.api.http.limits import MAX_DECODED_TOKENS, MAX_EMBEDDING_INPUTS
from sie_core.api.http.model_id import ModelId
from sie_core.api.inference.call import Call
from sie_core.api.inference.route import NO_TOKENIZERS, Operation
from sie_core.api.schema import RootSchema
from sie_core.api.tei.schema import MODEL
from sie_core.contracts import DecodeRequest, DecodingBackend, InferenceBackend, InvalidInput
from sie_core.logs import request_fields

_IDS: Final = {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 2**32 - 1}, "minItems": 1}


class TeiDecodeBody(DialectBody):
    """Token ids to write as text. A field that is null counts as absent."""

    model: ModelId | None = MODEL
    ids: Annotated[
        Any,
        WithJsonSchema(
            {
                "description": "The ids of a text, or a list of them for each text.",
                "anyOf": [_IDS, {"type": "array", "items": _IDS, "minItems": 1, "maxItems": MAX_EMBEDDING_INPUTS}],
            }
        ),
    ]
    skip_special_tokens: bool | None = Field(
        default=None, description="Whether special tokens are left out; absent: yes."
    )


class TeiTexts(RootSchema[list[str]]):
    """The text of each list of ids."""


def decode_request(call: Call, body: TeiDecodeBody) -> DecodeRequest:
    """Ask for the texts of token ids.

    Raises:
        InvalidInput: The ids are wrong.
    """
    special = body.skip_special_tokens is False
    request_id = request_fields().request_id
    return DecodeRequest(call.model(body.model), _read(body.ids), request_id, special=special, deadline=call.deadline)


def decode(backend: InferenceBackend, body: Any, asked: DecodeRequest) -> Awaitable[Sequence[str]]:
    """Have a backend write the texts, or refuse where it has no tokenizers."""
    if not isinstance(backend, DecodingBackend):
        raise InvalidInput(NO_TOKENIZERS)
    return backend.decode(asked)


def texts_reply(call: Call, body: Any, texts: Sequence[str]) -> bytes:
    """Write the texts."""
    return orjson.dumps(texts)


def _size(texts: Sequence[str]) -> int:
    return sum(map(len, texts))


def _read(given: Any) -> list[list[int]]:
    """Read the ids of each text.

    Raises:
        InvalidInput: `param` names the list at fault.
    """
    if not isinstance(given, list) or not given:
        raise InvalidInput(f"`ids` must be a list of token ids, or of such lists, not {kind_of(given)}.", param="ids")
    nested = isinstance(given[0], list)
    lists = given if nested else [given]
    if len(lists) > MAX_EMBEDDING_INPUTS:
        message = f"`ids` has {len(lists)} lists; {MAX_EMBEDDING_INPUTS} are allowed: send several requests."
        raise InvalidInput(message, param="ids")
    for place, ids in enumerate(lists):
        if not isinstance(ids, list) or not ids or not all(type(number) is int and number >= 0 for number in ids):
            param = f"ids[{place}]" if nested else "ids"
            raise InvalidInput(f"`{param}` must be a list of token ids, which are integers from 0.", param=param)
    if (count := sum(map(len, lists))) > MAX_DECODED_TOKENS:
        message = f"`ids` holds {count} tokens; {MAX_DECODED_TOKENS} are allowed: send several requests."
        raise InvalidInput(message, param="ids")
    return lists


DECODE: Final = Operation(TeiDecodeBody, decode_request, texts_reply, run=decode, size=_size)
