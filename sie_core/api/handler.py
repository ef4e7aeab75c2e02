"""What the routes in the shape of another API share: JSON in and out, and a load that is waited for.

Their clients know neither msgpack nor the codes of a model that is being loaded. It must not know what an operation's
body says or how its reply is written.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from sie_core.api.body.body import decode_body, read_body
from sie_core.api.body.negotiation import JSON_TYPE, body_format, reply_type
from sie_core.api.body.reply_headers import reply_headers
from sie_core.api.context import Api
from sie_core.api.http.call_headers import CallHeaders, read_call_headers
from sie_core.api.http.cancellation import answer
from sie_core.api.http.model_id import check_model_id
from sie_core.contracts import InferenceError, InferenceReply, InferenceRequest, InvalidInput
from sie_core.logs import request_fields

Body = TypeVar("Body", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Shape(Generic[Body]):
    """How one route of another API becomes an operation of ours, and back."""

    schema: type[Body]
    ask: Callable[[Body, CallHeaders], InferenceRequest]
    """Says in the contracts' terms what a client asks for."""
    write: Callable[[Body, InferenceReply], bytes]
    """Writes the body of the answer."""
    name: Callable[[str, Body], str]
    """Gives the name that the client has for a field of the contracts, e.g. `documents[3]` for `items[3].text`."""
    amend: Callable[[Body, InferenceRequest], Awaitable[InferenceRequest]] | None = None
    """Changes what is asked for where that takes a while."""
    token_ids: str = "Token ids are not taken here; send texts."
    """What a client is told whose token ids the model does not take."""


async def read_json(api: Api, request: Request) -> tuple[bytes, CallHeaders]:
    """Read the headers and the body of one call; its model is waited for, unless the client says how long.

    Raises:
        InferenceError: A header or the body's size or type is wrong.
    """
    call = read_call_headers(request.headers, api.machine_profile)
    given = body_format(request.headers.get("content-type", ""), msgpack=False)
    reply_type(request.headers.get("accept", ""), given, msgpack=False)
    data = await read_body(request, api.settings.max_request_body_bytes, api.gate, call.deadline)
    if call.load_wait_s is None:
        call = replace(call, load_wait_s=api.settings.model_wait_s)
    return data, call


async def answer_shaped(api: Api, request: Request, shape: Shape[Any]) -> Response:
    """Answer one request; bodies are read and written on a thread where they are large.

    Raises:
        InferenceError: Every way it can fail; `param` is the field's name in the body.
    """
    return await answer_read(api, request, shape, *await read_json(api, request))


async def answer_read(api: Api, request: Request, shape: Shape[Any], data: bytes, call: CallHeaders) -> Response:
    """Answer a request whose body was read; see `answer_shaped`."""
    fields = request_fields()

    def read() -> tuple[BaseModel, InferenceRequest]:
        body = decode_body(data, "json", shape.schema)
        asked = shape.ask(body, call)
        fields.model = check_model_id(asked.model)
        return body, asked

    body, asked = await api.beside.run(len(data), read)
    try:
        if asked.items[0].token_ids is not None and not api.backend.accepts_token_ids(asked.model):
            raise InvalidInput(shape.token_ids, param="items")
        reply = await answer(_amend_and_infer(api, shape, body, asked), api.gate, request.receive, asked.deadline)
    except InferenceError as error:
        if error.param is None:
            raise
        raise error.about(shape.name(error.param, body)) from error
    content = await api.beside.run(sum(map(len, reply.items)), lambda: shape.write(body, reply))
    return Response(content, 200, reply_headers(reply, call), JSON_TYPE)


async def _amend_and_infer(api: Api, shape: Shape[Any], body: BaseModel, asked: InferenceRequest) -> InferenceReply:
    return await api.backend.infer(asked if shape.amend is None else await shape.amend(body, asked))
