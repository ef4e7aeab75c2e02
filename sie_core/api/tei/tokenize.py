"""`/tokenize` in the shape of text-embeddings-inference (TEI): what the model's tokenizer makes of texts.

It must not know which backend answers; one without tokenizers refuses.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Final, TypeVar

from pydantic import BaseModel, BeforeValidator, Field, RootModel, WithJsonSchema
from starlette.requests import Request
from starlette.responses import Response

from sie_core.api.body.body import decode_body
from sie_core.api.body.json_list import dump_list
from sie_core.api.body.negotiation import JSON_TYPE
from sie_core.api.context import Api
from sie_core.api.handler import read_json
from sie_core.api.http.call_headers import CallHeaders
from sie_core.api.http.cancellation import answer
from sie_core.api.http.limits import MAX_EMBEDDING_INPUTS, MAX_TOKENIZED_BYTES
from sie_core.api.http.model_id import check_model_id
from sie_core.api.native.item_schema import STRICT
from sie_core.contracts import InferenceBackend, InvalidInput, TokenizeRequest, TokenizingBackend
from sie_core.logs import request_fields

TOKEN_BYTES: Final = 64
"""About how many bytes of the reply a token takes."""
NO_TOKENIZERS: Final = "This server has no tokenizers: the models run elsewhere. Ask the server that runs them."

Body = TypeVar("Body", bound=BaseModel)
Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _no_prompt(value: Any) -> None:
    if value is not None:
        raise ValueError("is not taken here; put the prompt itself before the texts")


class TeiTokenizeBody(BaseModel):
    """Texts to tokenise. A field that is null counts as absent."""

    model_config = STRICT

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


class TeiToken(BaseModel):
    """A token, and where it stands in its text, in characters."""

    id: int
    text: str
    special: bool
    start: int | None
    stop: int | None


class TeiTokens(RootModel[list[list[TeiToken]]]):
    """The tokens of each text, uncut, in the order of the texts."""


async def answer_tokenize(api: Api, request: Request, model: str) -> Response:
    """Answer one request.

    Raises:
        InferenceError: Every way it can fail.
    """

    def ask(body: TeiTokenizeBody, call: CallHeaders) -> TokenizeRequest:
        size = sum(len(text.encode("utf-8", "surrogatepass")) for text in body.inputs)
        if size > MAX_TOKENIZED_BYTES:
            message = f"`inputs` has {size} bytes; {MAX_TOKENIZED_BYTES} are allowed: send several requests."
            raise InvalidInput(message, param="inputs")
        special, wait_s = body.add_special_tokens is not False, call.load_wait_s or 0
        request_id = request_fields().request_id
        return TokenizeRequest(model, body.inputs, request_id, special, deadline=call.deadline, load_wait_s=wait_s)

    return await answer_by_tokenizer(
        api,
        request,
        model,
        TeiTokenizeBody,
        ask,
        lambda asked: tokenizing(api.backend).tokenize(asked),
        lambda tokens: sum(map(len, tokens)) * TOKEN_BYTES,
        dump_list,
    )


async def answer_by_tokenizer(
    api: Api,
    request: Request,
    model: str,
    schema: type[Body],
    ask: Callable[[Body, CallHeaders], Asked],
    run: Callable[[Asked], Awaitable[Answer]],
    size: Callable[[Answer], int],
    write: Callable[[Answer], bytes],
) -> Response:
    """Answer one request that a tokenizer answers, without a model; large bodies are read and written on a thread.

    Args:
        api: What answers it.
        request: The request.
        model: Whose tokenizer it is.
        schema: Of the body.
        ask: Says in the contracts' terms what the body asks for.
        run: Has the backend answer that.
        size: About how many bytes an answer takes.
        write: Writes one.

    Raises:
        InferenceError: Every way it can fail.
    """
    data, call = await read_json(api, request)
    fields = request_fields()

    def read() -> Asked:
        body = decode_body(data, "json", schema)
        fields.model = check_model_id(model)
        return ask(body, call)

    asked = await api.beside.run(len(data), read)
    told = await answer(run(asked), api.gate, request.receive, call.deadline)
    content = await api.beside.run(size(told), lambda: write(told))
    return Response(content, media_type=JSON_TYPE)


def tokenizing(backend: InferenceBackend) -> TokenizingBackend:
    """Return `backend` as one that tokenises.

    Raises:
        InvalidInput: It has no tokenizers.
    """
    if not isinstance(backend, TokenizingBackend):
        raise InvalidInput(NO_TOKENIZERS)
    return backend
