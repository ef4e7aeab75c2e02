"""The routes of text-embeddings-inference (TEI): at the root for the default model, below `/tei/` for any.

It must not know which backend answers, or how bodies become operations.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import orjson
from fastapi import APIRouter
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from sie_core import __version__
from sie_core.api.body import strict_json
from sie_core.api.body.negotiation import JSON_TYPE
from sie_core.api.context import Api
from sie_core.api.handler import answer_read, answer_shaped, read_json
from sie_core.api.http.envelopes import TEI_PREFIX
from sie_core.api.http.limits import MAX_EMBEDDING_INPUTS
from sie_core.api.http.model_id import check_model_id
from sie_core.api.route_docs import inference, lookup
from sie_core.api.tei.encode import Encoding
from sie_core.api.tei.rerank import Reranking
from sie_core.api.tei.schema import (
    TeiAnyBody,
    TeiAnyReply,
    TeiEmbedBody,
    TeiInfo,
    TeiRanks,
    TeiRerankBody,
    TeiSparseBody,
    TeiSparseVectors,
    TeiVectors,
)
from sie_core.api.tei.tokenize import TeiTokenizeBody, TeiTokens, answer_tokenize
from sie_core.contracts import ModelInfo

Answer = Callable[[Request, str], Coroutine[Any, Any, Response]]
"""Answers a request to a model."""

_MODEL = TEI_PREFIX + "{model:path}"


def router(api: Api) -> APIRouter:
    """Make the routes of inference; the last one would take any path of the others."""
    routes = APIRouter(tags=["tei"])
    limit = api.settings.max_item_text_bytes

    async def embed(request: Request, model: str) -> Response:
        """Embed texts; each vector has unit length, unless `normalize` is false."""
        return await answer_shaped(api, request, Encoding(model, "dense", limit).shape())

    async def embed_sparse(request: Request, model: str) -> Response:
        """Embed texts as sparse vectors."""
        return await answer_shaped(api, request, Encoding(model, "sparse", limit).shape())

    async def rerank(request: Request, model: str) -> Response:
        """Score texts against a query and rank them, the best first."""
        return await answer_shaped(api, request, Reranking(model, limit).shape())

    async def predict(request: Request, model: str) -> Response:
        """Do what the body asks for: rank texts, or embed them as the model does."""
        data, call = await read_json(api, request)
        body = await api.beside.run(len(data), lambda: strict_json.loads(data))
        ranks = isinstance(body, dict) and not body.keys().isdisjoint({"query", "texts"})
        shape = Reranking(model, limit).shape() if ranks else Encoding(model, None, limit).shape()
        return await answer_read(api, request, shape, data, call)

    async def tokenize(request: Request, model: str) -> Response:
        """List the tokens of texts, as the model's own tokenizer makes them; no model runs."""
        return await answer_tokenize(api, request, model)

    default = api.settings.default_model
    _add(routes, "/tokenize", tokenize, default, TeiTokenizeBody, TeiTokens)
    _add(routes, "/embed", embed, default, TeiEmbedBody, TeiVectors)
    _add(routes, "/embed_sparse", embed_sparse, default, TeiSparseBody, TeiSparseVectors)
    _add(routes, "/rerank", rerank, default, TeiRerankBody, TeiRanks)
    _add(routes, "/", predict, default, TeiAnyBody, TeiAnyReply)
    return routes


def _add(
    routes: APIRouter, path: str, answer: Answer, default: str, body: type[BaseModel], reply: type[BaseModel]
) -> None:
    """Add a route at the root, for the default model, and one for any other."""

    async def of_default(request: Request) -> Response:
        return await answer(request, default)

    async def of_model(request: Request, model: str) -> Response:
        return await answer(request, model.removesuffix("/"))

    described = inference(body, reply, msgpack=False, errors="tei")
    for where, endpoint in ((path, of_default), (_MODEL + path.removesuffix("/"), of_model)):
        routes.add_api_route(
            where, endpoint, methods=["POST"], name=answer.__name__, description=answer.__doc__, **described
        )


def lookups(api: Api) -> APIRouter:
    """Make the routes that ask no model anything."""
    routes = APIRouter(tags=["tei"])

    @routes.get("/info", **lookup(TeiInfo, 404, errors="tei"))
    async def default_info() -> Response:
        """Describe the default model."""
        return _info(api, api.settings.default_model)

    @routes.get(f"{_MODEL}/info", **lookup(TeiInfo, 404, 422, errors="tei"))
    async def info(model: str) -> Response:
        """Describe a model."""
        return _info(api, model)

    return routes


def _info(api: Api, model: str) -> Response:
    served, settings = api.backend.model(check_model_id(model)), api.settings
    content = {
        "model_id": served.id,
        "model_sha": served.revision,
        "model_dtype": served.precision,
        "model_type": _model_type(served),
        "max_concurrent_requests": settings.max_concurrent_requests,
        "max_input_length": served.max_sequence_length,
        "max_batch_tokens": settings.max_batch_cost,
        "max_batch_requests": settings.max_batch_requests,
        "max_client_batch_size": MAX_EMBEDDING_INPUTS,
        "auto_truncate": True,
        "tokenization_workers": settings.preprocessor_workers,
        "version": __version__,
        "sha": None,
        "docker_label": None,
    }
    return Response(orjson.dumps(content), media_type=JSON_TYPE)


def _model_type(model: ModelInfo) -> dict[str, dict[str, object]]:
    """Say whether it ranks or embeds; how it pools is its adapter's own."""
    if "encode" not in model.operations and "score" in model.operations:
        return {"reranker": {"id2label": {}, "label2id": {}}}
    return {"embedding": {"pooling": "splade" if model.outputs == ("sparse",) else "unknown"}}
