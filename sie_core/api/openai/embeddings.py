"""`POST /v1/embeddings`: the embeddings of OpenAI and Jina over `encode`. It must not know which backend answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from fastapi import APIRouter
from sie_sdk import wire
from starlette.requests import Request
from starlette.responses import Response

from sie_core.api.body.json_list import dump_with_list
from sie_core.api.context import Api
from sie_core.api.embedding_types import WRITE, Vector, of_unit_length
from sie_core.api.handler import Shape, answer_shaped
from sie_core.api.http.call_headers import CallHeaders
from sie_core.api.openai.embedding_input import FOREIGN_TOKEN_IDS, param_of, read_input
from sie_core.api.openai.jina import demands, task_role, wishes
from sie_core.api.openai.schema import EmbeddingsBody, EmbeddingsReply
from sie_core.api.route_docs import inference
from sie_core.contracts import InferenceReply, InferenceRequest
from sie_core.logs import request_fields
from sie_core.settings import Settings

_FIELDS: Final[Mapping[str, str]] = {
    "output_types": "model",  # the body has none: the model is the wrong one
    "options.prompt_name": "task",
    "options.normalize": "normalized",
}
"""The body's fields that options of the request were made of."""


def router(api: Api) -> APIRouter:
    """Make the route."""
    routes = APIRouter(tags=["inference"])
    shape = Embeddings.of(api.settings).shape()

    @routes.post("/v1/embeddings", **inference(EmbeddingsBody, EmbeddingsReply, msgpack=False, errors="openai"))
    async def embeddings(request: Request) -> Response:
        """Embed texts and, with a model that sees, pictures, as OpenAI and Jina do.

        A model that is not loaded is waited for, up to `SIE_MODEL_WAIT_S` seconds or those of `Prefer: wait=N`.
        """
        return await answer_shaped(api, request, shape)

    return routes


@dataclass(frozen=True, slots=True)
class Embeddings:
    """Requests for embeddings, of the model that the body names or of one that it does not choose.

    Args:
        model: The one; None leaves it to the body.
        default_model: Whose they are where nobody names one.
        max_text_bytes: The most bytes of an input.
    """

    model: str | None
    default_model: str
    max_text_bytes: int

    @classmethod
    def of(cls, settings: Settings, model: str | None = None) -> Embeddings:
        """Make those of a server, or of one of its models."""
        return cls(model, settings.default_model, settings.max_item_text_bytes)

    def shape(self) -> Shape[EmbeddingsBody]:
        """Describe them."""
        return Shape(EmbeddingsBody, self.ask, self.write, field_name, token_ids=FOREIGN_TOKEN_IDS)

    def ask(self, body: EmbeddingsBody, call: CallHeaders) -> InferenceRequest:
        """Say in the contracts' terms what the client asks for: float32 dense vectors.

        Raises:
            InvalidInput: An input is wrong, or two fields contradict each other.
        """
        return InferenceRequest(
            model=self._model(body),
            operation="encode",
            items=read_input(body.input, self.max_text_bytes),
            request_id=request_fields().request_id,
            output_types=("dense",),
            output_dtype="float32",
            input_type=task_role(body.task, body.input_type),
            truncate=body.truncate,
            dimensions=body.dimensions,
            wishes=wishes(body),
            demands=demands(body),
            deadline=call.deadline,
            load_wait_s=call.load_wait_s or 0,
        )

    def write(self, body: EmbeddingsBody, reply: InferenceReply) -> bytes:
        """Write the body."""
        return embeddings_reply(body, self._model(body), reply)

    def _model(self, body: EmbeddingsBody) -> str:
        if self.model is not None:
            return self.model
        return self.default_model if body.model is None else body.model


def field_name(param: str, body: EmbeddingsBody) -> str:
    """Name the field of the body that a field of the request was made of."""
    if param.startswith("items"):
        return param_of(param, body.input)
    return _FIELDS.get(param, param)


def embeddings_reply(body: EmbeddingsBody, model: str, reply: InferenceReply) -> bytes:
    """Write the body; the vectors go from their arrays to numbers or base64 without Python lists between."""
    tokens = reply.usage.input_tokens
    write = WRITE[body.embedding_type or body.encoding_format or "float"]
    vectors: Iterable[Vector] = (cast("dict[str, Any]", wire.unpack(item))["dense"]["values"] for item in reply.items)
    if body.normalized:
        vectors = map(of_unit_length, vectors)
    fields = {
        "object": "list",
        "data": None,
        "model": model,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens, "sie_token_source": "worker"},
    }
    entries = (
        {"object": "embedding", "index": place, "embedding": write(vector)} for place, vector in enumerate(vectors)
    )
    return dump_with_list(fields, "data", entries)
