"""`/tokenize` in the shape of text-embeddings-inference (TEI): the tokens of texts, by the model's tokenizer."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field, WithJsonSchema

from sie_core.api.body.json_body import Entries, write_json
from sie_core.api.body.pieces import Content
from sie_core.api.fields.body import DialectBody
from sie_core.api.http.limits import MAX_EMBEDDING_INPUTS, MAX_TOKENIZED_BYTES
from sie_core.api.http.model_id import ModelId
from sie_core.api.inference.call import Call
from sie_core.api.inference.route import Operation, tokenizing
from sie_core.api.schema import RootSchema, Schema
from sie_core.api.tei.schema import MODEL
from sie_core.contracts import InferenceBackend, InvalidInput, Token, TokenizeRequest
from sie_core.logs import request_fields

TOKEN_BYTES: Final = 64
"""The approximate bytes of a token in the reply."""


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _no_prompt(value: Any) -> None:
    if value is not None:
        raise ValueError("is not taken here; put the prompt itself before the texts")


class TeiTokenizeBody(DialectBody):
    """Texts to tokenise. A field that is null counts as absent."""

    model: ModelId | None = MODEL
    inputs: Annotated[
        list[str],
        BeforeValidator(_listed),
        WithJsonSchema(
            {
                "anyOf": [
                    {"type": "string"},
                    {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": MAX_EMBEDDING_INPUTS},
                ]
            }
        ),
    ] = Field(min_length=1, max_length=MAX_EMBEDDING_INPUTS)
    add_special_tokens: bool | None = Field(
        default=None, description="Whether the special tokens around each text are listed; absent: yes."
    )
    prompt_name: Annotated[None, BeforeValidator(_no_prompt)] = Field(
        default=None, description="Not taken: texts are tokenised as they are."
    )


class TeiToken(Schema):
    """A token, and where it stands in its text, in characters."""

    id: int
    text: str
    special: bool
    start: int | None
    stop: int | None


class TeiTokens(RootSchema[list[list[TeiToken]]]):
    """The tokens of each text, uncut, in the order of the texts."""


def tokenize_request(call: Call, body: TeiTokenizeBody) -> TokenizeRequest:
    """Ask for the tokens of texts.

    Raises:
        InvalidInput: The texts are too large.
    """
    size = sum(len(text.encode("utf-8", "surrogatepass")) for text in body.inputs)
    if size > MAX_TOKENIZED_BYTES:
        message = f"`inputs` has {size} bytes; {MAX_TOKENIZED_BYTES} are allowed: send several requests."
        raise InvalidInput(message, param="inputs")
    return TokenizeRequest(
        call.model(body.model),
        body.inputs,
        request_fields().request_id,
        special=body.add_special_tokens is not False,
        deadline=call.deadline,
    )


def tokenize(backend: InferenceBackend, body: Any, asked: TokenizeRequest) -> Awaitable[Sequence[Sequence[Token]]]:
    """Have a backend tokenise, or refuse where it has no tokenizers."""
    return tokenizing(backend).tokenize(asked)


def tokens_reply(call: Call, body: Any, tokens: Sequence[Sequence[Token]]) -> Content:
    """Write the tokens."""
    return write_json(Entries(tokens), _size(tokens))


def _size(tokens: Sequence[Sequence[Token]]) -> int:
    return sum(map(len, tokens)) * TOKEN_BYTES


TOKENIZE: Final = Operation(TeiTokenizeBody, tokenize_request, tokens_reply, run=tokenize, size=_size)
