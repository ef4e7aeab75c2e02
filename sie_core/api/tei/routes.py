"""The routes of text-embeddings-inference (TEI): at the root for the default model, below `/tei/` for any.

It must not know which backend answers, or how bodies become operations.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from fastapi import APIRouter
from pydantic import BaseModel
from starlette.convertors import StringConvertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response

from sie_core.api.body import strict_json
from sie_core.api.context import Api
from sie_core.api.handler import Shape, answer_read, answer_shaped, read_json
from sie_core.api.http.envelopes import ENVELOPE, TEI_PREFIX
from sie_core.api.http.model_id import ModelId, check_model_id
from sie_core.api.openai.embeddings import Embeddings
from sie_core.api.openai.schema import EmbeddingsBody, EmbeddingsReply
from sie_core.api.route_docs import inference
from sie_core.api.tei import lookups
from sie_core.api.tei.decode import TeiDecodeBody, TeiTexts, answer_decode
from sie_core.api.tei.encode import Encoding
from sie_core.api.tei.predict import Predicting, TeiPredictBody, TeiPredictions
from sie_core.api.tei.rerank import Reranking, RerankingDocuments
from sie_core.api.tei.root import TeiAnyBody, TeiAnyReply, wanted
from sie_core.api.tei.schema import (
    TeiEmbedAllBody,
    TeiEmbedBody,
    TeiRankingBody,
    TeiRankingErrorReply,
    TeiRankingReply,
    TeiSparseBody,
    TeiSparseVectors,
    TeiTokenVectors,
    TeiVectors,
)
from sie_core.api.tei.similarity import Similarity, TeiSimilarities, TeiSimilarityBody
from sie_core.api.tei.tokenize import TeiTokenizeBody, TeiTokens, answer_tokenize
from sie_core.contracts import OutputType

_MODEL: Final = TEI_PREFIX + "{model:path}"

Answer = Callable[[Request, str | None], Coroutine[Any, Any, Response]]
"""Answers a request to a model; None is the default model, or the body's where it names one."""


class _ModelConvertor(StringConvertor):
    """The id of a model at the end of a path, which ends in no name of `lookups`."""

    regex = rf"(?!.*/(?:{'|'.join(lookups.NAMES)})/?$).*"


def router(api: Api) -> APIRouter:
    """Make the routes of inference; the last one would take any path of the others."""
    register_url_convertor("tei_model", _ModelConvertor())
    routes, answers = APIRouter(tags=["tei"]), _Answers(api)

    def add(path: str, answer: Answer, body: type[BaseModel], reply: type[BaseModel], **described: Any) -> None:
        described = {"errors": "tei"} | described
        _add(routes, (path,), (_MODEL + path,), answer, inference(body, reply, msgpack=False, **described))

    add("/tokenize", answers.tokenize, TeiTokenizeBody, TeiTokens)
    add("/decode", answers.decode, TeiDecodeBody, TeiTexts)
    add("/embed", answers.embed, TeiEmbedBody, TeiVectors)
    add("/embed_all", answers.embed_all, TeiEmbedAllBody, TeiTokenVectors)
    add("/embed_sparse", answers.embed_sparse, TeiSparseBody, TeiSparseVectors)
    add("/similarity", answers.similarity, TeiSimilarityBody, TeiSimilarities)
    add("/rerank", answers.rerank, TeiRankingBody, TeiRankingReply, error=TeiRankingErrorReply)
    add("/predict", answers.predict, TeiPredictBody, TeiPredictions)
    embeddings = inference(EmbeddingsBody, EmbeddingsReply, msgpack=False, errors="openai")
    below = (f"{_MODEL}/v1/embeddings", f"{_MODEL}/embeddings")
    _add(routes, ("/embeddings",), below, answers.embeddings, embeddings)
    anything = inference(TeiAnyBody, TeiAnyReply, msgpack=False, errors="tei", error=TeiRankingErrorReply)
    _add(routes, ("/",), (TEI_PREFIX + "{model:tei_model}",), answers.anything, anything)
    return routes


def _add(
    routes: APIRouter, at_root: Sequence[str], below: Sequence[str], answer: Answer, described: dict[str, Any]
) -> None:
    """Add the routes of no model in particular, and those below a model."""

    async def of_default(request: Request) -> Response:
        return await answer(request, None)

    async def of_model(request: Request, model: ModelId) -> Response:
        return await answer(request, model.removesuffix("/"))

    for paths, endpoint in ((at_root, of_default), (below, of_model)):
        for path in paths:
            routes.add_api_route(
                path, endpoint, methods=["POST"], name=answer.__name__, description=answer.__doc__, **described
            )


class _Answers:
    """What each route does."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._default = api.settings.default_model
        self._limit = api.settings.max_item_text_bytes

    async def embed(self, request: Request, model: str | None) -> Response:
        """Embed texts; each vector has unit length, unless `normalize` is false."""
        return await answer_shaped(self._api, request, self._encoding(model, "dense"))

    async def embed_all(self, request: Request, model: str | None) -> Response:
        """Embed each token of texts; for models of late interaction, whose vectors these are."""
        return await answer_shaped(self._api, request, self._encoding(model, "multivector"))

    async def embed_sparse(self, request: Request, model: str | None) -> Response:
        """Embed texts as sparse vectors."""
        return await answer_shaped(self._api, request, self._encoding(model, "sparse"))

    async def similarity(self, request: Request, model: str | None) -> Response:
        """Compare a text with others by the cosines between their dense vectors."""
        return await answer_shaped(self._api, request, Similarity(self._named(model), self._limit).shape())

    async def predict(self, request: Request, model: str | None) -> Response:
        """Classify texts: by the classes of the model, or by `candidate_labels`."""
        return await answer_shaped(self._api, request, Predicting(self._named(model), self._limit).shape())

    async def rerank(self, request: Request, model: str | None) -> Response:
        """Score texts against a query and rank them, the best first; `documents` are answered as by `/v1/rerank`."""
        data, call = await read_json(self._api, request)
        body = await self._parse(data) if b'"documents"' in data else None
        return await answer_read(self._api, request, self._ranking(request, body, model), data, call)

    async def anything(self, request: Request, model: str | None) -> Response:
        """Do what the body asks for: compare, rank or classify texts, or embed them as the model does."""
        data, call = await read_json(self._api, request)
        body = await self._parse(data)
        shape: Shape[Any]
        match wanted(body):
            case "ranks":
                shape = self._ranking(request, body, model)
            case "similarity":
                shape = Similarity(self._named(model), self._limit).shape()
            case None if not self._classifies(self._named(model)):
                shape = self._encoding(model, None)
            case _:
                shape = Predicting(self._named(model), self._limit).shape()
        return await answer_read(self._api, request, shape, data, call)

    async def tokenize(self, request: Request, model: str | None) -> Response:
        """List the tokens of texts, as the model's own tokenizer makes them; no model runs."""
        return await answer_tokenize(self._api, request, self._named(model))

    async def decode(self, request: Request, model: str | None) -> Response:
        """Write the texts of token ids, as the model's own tokenizer does; no model runs."""
        return await answer_decode(self._api, request, self._named(model))

    async def embeddings(self, request: Request, model: str | None) -> Response:
        """Embed texts, as OpenAI does. Below a model, the body's `model` is not read."""
        return await answer_shaped(self._api, request, Embeddings.of(self._api.settings, model).shape())

    def _named(self, model: str | None) -> str:
        return self._default if model is None else model

    async def _parse(self, data: bytes) -> Any:
        return await self._api.beside.run(len(data), lambda: strict_json.loads(data))

    def _encoding(self, model: str | None, output: OutputType | None) -> Shape[Any]:
        return Encoding(self._named(model), output, self._limit).shape()

    def _ranking(self, request: Request, body: Any, model: str | None) -> Shape[Any]:
        if not (isinstance(body, dict) and body.get("texts") is None and body.get("documents") is not None):
            return Reranking(self._named(model), self._limit).shape()
        request.scope[ENVELOPE] = "openai"
        return RerankingDocuments(model, self._default, self._limit).shape()

    def _classifies(self, model: str) -> bool:
        operations = self._api.backend.model(check_model_id(model)).operations
        return "extract" in operations and "encode" not in operations
