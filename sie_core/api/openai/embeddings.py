"""`POST /v1/embeddings`: the embeddings of OpenAI and Jina over `encode`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from sie_sdk import wire

from sie_core.api.body.embedding_types import WRITE, Vector, of_unit_length
from sie_core.api.body.json_list import dump_with_list
from sie_core.api.inference.call import Call
from sie_core.api.inference.route import Operation, Route, infer_token_ids
from sie_core.api.openai.embedding_input import FOREIGN_TOKEN_IDS, param_of, read_input
from sie_core.api.openai.jina import demands, task_role, wishes
from sie_core.api.openai.schema import EmbeddingsBody, EmbeddingsReply
from sie_core.contracts import InferenceReply, InferenceRequest
from sie_core.logs import request_fields

_FIELDS: Final[Mapping[str, str]] = {
    "output_types": "model",  # the body has none: the model is the wrong one
    "options.prompt_name": "task",
    "options.normalize": "normalized",
}
"""The body's fields for parameters of the request to the backend."""


def embeddings_request(call: Call, body: EmbeddingsBody) -> InferenceRequest:
    """Ask for float32 dense vectors.

    Raises:
        InvalidInput: An input is wrong, or two fields contradict each other.
    """
    return InferenceRequest(
        model=call.model(body.model),
        operation="encode",
        items=read_input(body.input, call.settings.max_item_text_bytes),
        request_id=request_fields().request_id,
        output_types=("dense",),
        output_dtype="float32",
        input_type=task_role(body.task, body.input_type),
        truncate=body.truncate,
        dimensions=body.dimensions,
        wishes=wishes(body),
        demands=demands(body),
        deadline=call.deadline,
        load_wait_s=call.load_wait_s,
    )


def field_name(param: str, body: EmbeddingsBody) -> str:
    """Name the body's field for a field of the request to the backend."""
    if param.startswith("items"):
        return param_of(param, body.input)
    return _FIELDS.get(param, param)


def embeddings_reply(call: Call, body: EmbeddingsBody, reply: InferenceReply) -> bytes:
    """Write the body; vectors become numbers or base64 without Python lists in between."""
    tokens = reply.usage.input_tokens
    write = WRITE[body.embedding_type or body.encoding_format or "float"]
    vectors: Iterable[Vector] = (cast("dict[str, Any]", wire.unpack(item))["dense"]["values"] for item in reply.items)
    if body.normalized:
        vectors = map(of_unit_length, vectors)
    fields = {
        "object": "list",
        "data": None,
        "model": call.model(body.model),
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens, "sie_token_source": "worker"},
    }
    entries = (
        {"object": "embedding", "index": place, "embedding": write(vector)} for place, vector in enumerate(vectors)
    )
    return dump_with_list(fields, "data", entries)


EMBEDDINGS = Operation(
    EmbeddingsBody, embeddings_request, embeddings_reply, field_name, infer_token_ids(FOREIGN_TOKEN_IDS)
)
ROUTE = Route(
    paths=("/v1/embeddings",),
    name="embeddings",
    about="""\
Embed texts and, with a model that sees, pictures, as OpenAI and Jina do.

A model that is not loaded is waited for, up to `SIE_MODEL_WAIT_S` seconds or those of `Prefer: wait=N`.
""",
    body=EmbeddingsBody,
    reply=EmbeddingsReply,
    operation=EMBEDDINGS,
    errors="openai",
)
