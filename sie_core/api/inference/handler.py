"""The handler of every inference route."""

from __future__ import annotations

from functools import partial
from typing import Any

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from sie_core.api.body.body import RawBody, decode_body, read_body
from sie_core.api.body.embedding_types import JSON_FLOAT_BYTES, JSON_INTEGER_BYTES
from sie_core.api.body.negotiation import JSON_TYPE
from sie_core.api.context import Api
from sie_core.api.fields.body import ignored_fields
from sie_core.api.http.envelopes import DIALECT
from sie_core.api.http.model_id import check_model_id
from sie_core.api.inference.call import Call, read_call
from sie_core.api.inference.cancellation import answer
from sie_core.api.inference.capacity import ANY, POOL, PROFILE
from sie_core.api.inference.reply_headers import reply_headers
from sie_core.api.inference.route import Operation, Route
from sie_core.api.inference.streamed import response
from sie_core.api.request import HEADERS
from sie_core.contracts import InferenceError, InferenceReply, InferenceRequest, LoadWait, ReplyForm
from sie_core.logs import request_fields


async def handle(route: Route, api: Api, request: Request) -> Response:
    """Answer one request; large bodies are read and written on a thread, and leave others the interpreter's lock.

    Raises:
        InferenceError: Every way it can fail; `param` is the field's path in the body.
    """
    path_model = request.path_params.get("model")
    call = read_call(api, request.scope, request.scope[HEADERS], path_model, msgpack=route.msgpack, waits=route.waits)
    if path_model is not None:
        check_model_id(path_model)
    data = await read_body(request, api.settings.max_request_body_bytes, api.gate, api.body_threads, call.deadline)
    chosen = route.operation
    operation = chosen if isinstance(chosen, Operation) else await chosen(api, call, data)
    if operation.dialect is not None:
        request.scope[DIALECT] = operation.dialect
    body, asked = await api.body_threads.run(len(data), partial(_read, api, call, operation, data))
    try:
        reply = await answer(operation.run(api.backend, body, asked), api.gate, request.receive, call.deadline)
    except InferenceError as error:
        if error.param in (None, PROFILE, POOL):  # headers, which the body does not name
            raise
        named = operation.field_name(error.param, body)
        if named == error.param:
            raise
        raise error.about(named) from None
    if isinstance(reply, InferenceReply):
        api.totals.answered(len(reply.items), reply.timing.stages_s)
    content = await api.body_threads.run(operation.size(reply), partial(operation.write, call, body, reply))
    headers = reply_headers(reply, call, ignored_fields(body)) if isinstance(reply, InferenceReply) else {}
    return response(content, headers, call.reply_type, api.body_threads)


def _read(api: Api, call: Call, operation: Operation[Any], data: RawBody) -> tuple[BaseModel, Any]:
    """Read a body, and make the request to the backend; return both.

    Raises:
        InferenceError: `INVALID_INPUT`, naming the first field at fault in `param`.
    """
    body = decode_body(data, call.body_format, operation.body)
    asked = operation.ask(call, body)
    request_fields().model = check_model_id(asked.model)
    place = api.gate.waiting
    wait = LoadWait(call.load_wait.seconds, call.load_wait.if_soon, place)
    if isinstance(asked, InferenceRequest):
        _complete(
            asked, load_wait=wait, client=call.client, priority=call.priority, reply=_reply_form(call, operation, body)
        )
        if call.capacity is not ANY:
            _complete(asked, machine_profile=call.capacity.profile, resource_pool=call.capacity.pool)
    else:
        _complete(asked, load_wait=wait)
    return body, asked


def _complete(asked: Any, **said: Any) -> None:
    """Set what no route knows on a request that nobody else has yet; a copy would take longer than to make it."""
    for name, value in said.items():
        object.__setattr__(asked, name, value)


def _reply_form(call: Call, operation: Operation[Any], body: BaseModel) -> ReplyForm:
    """Tell how many bytes the reply may have, and what its format makes of numbers."""
    most = call.settings.max_reply_bytes
    if operation.float_bytes is not None:
        return ReplyForm(most, operation.float_bytes(body))
    return ReplyForm(most, JSON_FLOAT_BYTES, JSON_INTEGER_BYTES) if call.reply_type == JSON_TYPE else ReplyForm(most)
