"""What the native inference routes share: from a request in either format to the reply in the format it asks for.

It must not know what an operation's body says or how its reply is written.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response

from sie_core.api.body.body import decode_body, read_body
from sie_core.api.body.negotiation import body_format, reply_type
from sie_core.api.body.reply_headers import reply_headers
from sie_core.api.context import Api
from sie_core.api.http.call_headers import CallHeaders, read_call_headers
from sie_core.api.http.cancellation import answer
from sie_core.api.http.model_id import check_model_id
from sie_core.api.native.item_schema import NativeBody, check_item_size
from sie_core.contracts import InferenceError, InferenceReply, InferenceRequest

Body = TypeVar("Body", bound=NativeBody)
Ask = Callable[[str, Body, CallHeaders], InferenceRequest]
"""Says in the contracts' terms what a client asks for: of the model, the body and the headers."""
Write = Callable[[InferenceRequest, InferenceReply, str], bytes]
"""Writes the body of the answer to a request in a media type."""


async def answer_native(
    api: Api, request: Request, model: str, schema: type[Body], ask: Ask[Body], write: Write
) -> Response:
    """Answer one request; `ask` and `write` run on a thread where the bodies are large.

    Raises:
        InferenceError: Every way it can fail; `param` is the field's path in the body.
    """
    call = read_call_headers(request.headers, api.machine_profile)
    given = body_format(request.headers.get("content-type", ""))
    wanted = reply_type(request.headers.get("accept", ""), given)
    check_model_id(model)
    data = await read_body(request, api.settings.max_request_body_bytes, api.gate, call.deadline)

    def read() -> InferenceRequest:
        body = decode_body(data, given, schema)
        for place, item in body.places():
            check_item_size(item.text, item.metadata, api.settings.max_item_text_bytes, place)
        return ask(model, body, call)

    asked = await api.beside.run(len(data), read)
    try:
        reply = await answer(api.backend.infer(asked), api.gate, request.receive, asked.deadline)
    except InferenceError as error:
        raise _told(error, schema) from None
    content = await api.beside.run(sum(map(len, reply.items)), lambda: write(asked, reply, wanted))
    return Response(content, 200, reply_headers(reply, call), wanted)


def _told(error: InferenceError, schema: type[NativeBody]) -> InferenceError:
    """Tell an error about a field by its path in the body: in `params`, where it has them and not the field itself."""
    field = re.match(r"\w+", error.param or "")
    if field is None or field[0] == "model" or "params" not in schema.model_fields or field[0] in schema.model_fields:
        return error
    return error.about(f"params.{error.param}")
