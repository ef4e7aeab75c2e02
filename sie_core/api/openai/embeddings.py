"""`POST /v1/embeddings`: OpenAI's embeddings over `encode`. It must not know which backend answers."""

from __future__ import annotations

import base64
from typing import Any, cast

import numpy as np
from fastapi import APIRouter
from numpy.typing import NDArray
from sie_sdk import wire
from starlette.requests import Request
from starlette.responses import Response

from sie_core.api.body.body import decode_body, read_body
from sie_core.api.body.json_list import dump_with_list
from sie_core.api.body.negotiation import JSON_TYPE, body_format, reply_type
from sie_core.api.body.reply_headers import reply_headers
from sie_core.api.context import Api
from sie_core.api.http.call_headers import CallHeaders, read_call_headers
from sie_core.api.http.cancellation import answer
from sie_core.api.http.model_id import check_model_id
from sie_core.api.openai.embedding_input import FOREIGN_TOKEN_IDS, has_token_ids, param_of, read_input
from sie_core.api.openai.schema import EmbeddingsBody, EmbeddingsReply
from sie_core.api.route_docs import inference
from sie_core.contracts import InferenceError, InferenceReply, InferenceRequest, InvalidInput, Item
from sie_core.logs import request_fields


def router(api: Api) -> APIRouter:
    """Make the route."""
    routes = APIRouter(tags=["inference"])

    @routes.post("/v1/embeddings", **inference(EmbeddingsBody, EmbeddingsReply, msgpack=False, errors="openai"))
    async def embeddings(request: Request) -> Response:
        """Embed texts, as OpenAI does.

        A model that is not loaded is waited for, up to `SIE_MODEL_WAIT_S` seconds or those of `Prefer: wait=N`.
        """
        call = read_call_headers(request.headers, api.machine_profile)
        given = body_format(request.headers.get("content-type", ""), msgpack=False)
        reply_type(request.headers.get("accept", ""), given, msgpack=False)
        data = await read_body(request, api.settings.max_request_body_bytes, api.gate, call.deadline)
        fields = request_fields()

        def read() -> tuple[EmbeddingsBody, list[Item]]:
            body = decode_body(data, given, EmbeddingsBody)
            fields.model = check_model_id(body.model)
            return body, read_input(body.input, api.settings.max_item_text_bytes)

        body, items = await api.beside.run(len(data), read)
        if has_token_ids(items) and not api.backend.accepts_token_ids(body.model):
            raise InvalidInput(FOREIGN_TOKEN_IDS, param="input")
        wanted = inference_request(body, items, call, fields.request_id, api.settings.model_wait_s)
        try:
            reply = await answer(api.backend.infer(wanted), api.gate, request.receive, wanted.deadline)
        except InferenceError as error:
            if error.param and error.param.startswith("items["):
                raise error.about(param_of(error.param, body.input)) from error
            if error.param == "output_types":  # the body has none: the model is the wrong one
                raise error.about("model") from error
            raise
        content = await api.beside.run(sum(map(len, reply.items)), lambda: embeddings_reply(body, reply))
        return Response(content, 200, reply_headers(reply, call), JSON_TYPE)

    return routes


def inference_request(
    body: EmbeddingsBody, items: list[Item], call: CallHeaders, request_id: str, wait_s: float
) -> InferenceRequest:
    """Say in the contracts' terms what the client asks for: float32 dense vectors."""
    return InferenceRequest(
        model=body.model,
        operation="encode",
        items=items,
        request_id=request_id,
        output_types=("dense",),
        output_dtype="float32",
        input_type=body.input_type,
        truncate=body.truncate,
        dimensions=body.dimensions,
        deadline=call.deadline,
        load_wait_s=wait_s if call.load_wait_s is None else call.load_wait_s,
    )


def embeddings_reply(body: EmbeddingsBody, reply: InferenceReply) -> bytes:
    """Write the body; the vectors go from their arrays to numbers or base64 without Python lists between."""
    tokens = reply.usage.input_tokens
    write = _base64 if body.encoding_format == "base64" else _as_is
    vectors = (cast("dict[str, Any]", wire.unpack(item))["dense"]["values"] for item in reply.items)
    fields = {
        "object": "list",
        "data": None,
        "model": body.model,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens, "sie_token_source": "worker"},
    }
    entries = (
        {"object": "embedding", "index": place, "embedding": write(vector)} for place, vector in enumerate(vectors)
    )
    return dump_with_list(fields, "data", entries)


def _as_is(vector: NDArray[np.float32]) -> NDArray[np.float32]:
    return vector


def _base64(vector: NDArray[np.float32]) -> str:
    return base64.b64encode(vector.astype("<f4", copy=False).data).decode()
