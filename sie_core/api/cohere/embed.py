"""`POST /v1/embed` and `POST /v2/embed`: Cohere's embeddings over `encode`. It must not know which backend answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

import orjson
from fastapi import APIRouter
from sie_sdk import wire
from starlette.requests import Request
from starlette.responses import Response

from sie_core.api.body.json_list import dump_list
from sie_core.api.cohere.inputs import field_name, read_inputs
from sie_core.api.cohere.schema import CohereEmbedBody, CohereEmbedReply
from sie_core.api.context import Api
from sie_core.api.embedding_types import WRITE, EmbeddingType, Vector
from sie_core.api.handler import Shape, answer_shaped
from sie_core.api.http.call_headers import CallHeaders
from sie_core.api.route_docs import inference
from sie_core.contracts import InferenceReply, InferenceRequest, InputType, Truncate
from sie_core.logs import request_fields

_TRUNCATE: Final[Mapping[str, Truncate]] = {"NONE": "error", "START": "start", "END": "end"}
_ROLES: Final[Mapping[str | None, InputType]] = {"search_query": "query", "search_document": "document"}
_PROMPTS: Final = ("classification", "clustering")


def router(api: Api) -> APIRouter:
    """Make the routes."""
    routes = APIRouter(tags=["inference"])
    first, second = (Embed(version, api.settings.default_model, api.settings.max_item_text_bytes) for version in "12")

    @routes.post("/v1/embed", **inference(CohereEmbedBody, CohereEmbedReply, msgpack=False, errors="cohere"))
    async def embed(request: Request) -> Response:
        """Embed texts or pictures, in the shape of Cohere's first API: plain lists of numbers, unless types are named.

        A model that is not loaded is waited for, up to `SIE_MODEL_WAIT_S` seconds or those of `Prefer: wait=N`.
        """
        return await answer_shaped(api, request, first.shape())

    @routes.post("/v2/embed", **inference(CohereEmbedBody, CohereEmbedReply, msgpack=False, errors="cohere"))
    async def embed_v2(request: Request) -> Response:
        """Embed texts or pictures, in the shape of Cohere's second API: the vectors of each type by its name.

        A model that is not loaded is waited for, up to `SIE_MODEL_WAIT_S` seconds or those of `Prefer: wait=N`.
        """
        return await answer_shaped(api, request, second.shape())

    return routes


@dataclass(frozen=True, slots=True)
class Embed:
    """Requests for embeddings in the shape of one version of Cohere's API.

    Args:
        version: `1` or `2`.
        default_model: Whose they are where the body names no model.
        max_text_bytes: The most bytes of a text.
    """

    version: str
    default_model: str
    max_text_bytes: int

    def shape(self) -> Shape[CohereEmbedBody]:
        """Describe them."""
        return Shape(CohereEmbedBody, self.ask, self.write, field_name)

    def ask(self, body: CohereEmbedBody, call: CallHeaders) -> InferenceRequest:
        """Say in the contracts' terms what the client asks for: float32, of which every type is made.

        Raises:
            InvalidInput: An input is wrong.
        """
        return InferenceRequest(
            model=self.default_model if body.model is None else body.model,
            operation="encode",
            items=read_inputs(body, self.max_text_bytes),
            request_id=request_fields().request_id,
            output_types=("dense",),
            output_dtype="float32",
            input_type=_ROLES.get(body.input_type),
            truncate=None if body.truncate is None else _TRUNCATE[body.truncate],
            dimensions=body.output_dimension,
            demands={"prompt_name": body.input_type} if body.input_type in _PROMPTS else {},
            deadline=call.deadline,
            load_wait_s=call.load_wait_s or 0,
        )

    def write(self, body: CohereEmbedBody, reply: InferenceReply) -> bytes:
        """Write the reply."""
        vectors = [cast("dict[str, Any]", wire.unpack(item))["dense"]["values"] for item in reply.items]
        plain = self.version == "1" and body.embedding_types is None
        types: list[EmbeddingType] = body.embedding_types or ["float"]
        return orjson.dumps(
            {
                "id": request_fields().request_id,
                "response_type": "embeddings_floats" if plain else "embeddings_by_type",
                "embeddings": _written(vectors, "float")
                if plain
                else {name: _written(vectors, name) for name in types},
                "texts": body.texts or [],
                "meta": {
                    "api_version": {"version": self.version},
                    "tokens": {"input_tokens": reply.usage.input_tokens},
                },
            }
        )


def _written(vectors: list[Vector], name: EmbeddingType) -> orjson.Fragment:
    return orjson.Fragment(dump_list(map(WRITE[name], vectors)))
