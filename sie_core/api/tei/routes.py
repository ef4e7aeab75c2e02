"""The routes of text-embeddings-inference (TEI): at the root for the default model, below `/tei/` for any."""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel
from starlette.convertors import StringConvertor, register_url_convertor

from sie_core.api.body import strict_json
from sie_core.api.body.body import RawBody
from sie_core.api.context import Api
from sie_core.api.http.envelopes import TEI_PREFIX, Dialect
from sie_core.api.http.model_id import check_model_id
from sie_core.api.inference.call import Call
from sie_core.api.inference.route import Choose, Operation, Route
from sie_core.api.openai.embeddings import EMBEDDINGS, EXAMPLES
from sie_core.api.openai.schema import EmbeddingsBody, EmbeddingsReply
from sie_core.api.openapi.examples import Example
from sie_core.api.tei import lookups
from sie_core.api.tei.decode import DECODE, TeiDecodeBody, TeiTexts
from sie_core.api.tei.encode import vectors_operation
from sie_core.api.tei.predict import PREDICT, TeiPredictBody, TeiPredictions
from sie_core.api.tei.rerank import RANK_DOCUMENTS, RANK_TEXTS
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
from sie_core.api.tei.similarity import SIMILARITY, TeiSimilarities, TeiSimilarityBody
from sie_core.api.tei.tokenize import TOKENIZE, TeiTokenizeBody, TeiTokens

_MODEL: Final = TEI_PREFIX + "{model:path}"
_EMBED_TEXTS: Final = Example("Vectors of two texts", {"inputs": ["Bees make honey.", "The bakery opens at seven."]})
_COMPARE_TEXTS: Final = Example(
    "A text compared with two others",
    {
        "inputs": {
            "source_sentence": "Bees make honey.",
            "sentences": ["Honey is made by bees.", "The bakery opens at seven."],
        }
    },
)
_RANK: Final = Example(
    "Two texts ranked for a query",
    {"query": "who makes honey?", "texts": ["The bakery opens at seven.", "Bees make honey."]},
    needs="score",
)
_EMBED: Final = vectors_operation("dense")
_EMBED_ALL: Final = vectors_operation("multivector", TeiEmbedAllBody)
_EMBED_SPARSE: Final = vectors_operation("sparse", TeiSparseBody)
_EMBED_ANY: Final = vectors_operation(None)


class _ModelConvertor(StringConvertor):
    """The id of a model at the end of a path that does not end in a name of `lookups`."""

    regex = rf"(?!.*/(?:{'|'.join(lookups.NAMES)})$).*"


def tei_routes() -> tuple[Route, ...]:
    """Make the routes of inference; the path of the last one matches those of the others too."""
    register_url_convertor("tei_model", _ModelConvertor())
    return (
        _route(
            "tokenize",
            "List the tokens of texts, as the model's own tokenizer makes them; no model runs.",
            TeiTokenizeBody,
            TeiTokens,
            TOKENIZE,
            Example("The tokens of a text", {"inputs": "Bees make honey."}),
        ),
        _route(
            "decode",
            "Write the texts of token ids, as the model's own tokenizer does; no model runs.",
            TeiDecodeBody,
            TeiTexts,
            DECODE,
            Example("The text of four tokens", {"ids": [101, 7592, 2088, 102]}),
        ),
        _route(
            "embed",
            "Embed texts; each vector has unit length, unless `normalize` is false.",
            TeiEmbedBody,
            TeiVectors,
            _EMBED,
            _EMBED_TEXTS,
        ),
        _route(
            "embed_all",
            "Embed each token of texts; for models of late interaction, whose vectors these are.",
            TeiEmbedAllBody,
            TeiTokenVectors,
            _EMBED_ALL,
            Example("A vector for each token of a text", {"inputs": "Bees make honey."}, needs="multivector"),
        ),
        _route(
            "embed_sparse",
            "Embed texts as sparse vectors.",
            TeiSparseBody,
            TeiSparseVectors,
            _EMBED_SPARSE,
            Example("A sparse vector", {"inputs": "Bees make honey."}, needs="sparse"),
        ),
        _route(
            "similarity",
            "Compare a text with others by the cosines between their dense vectors.",
            TeiSimilarityBody,
            TeiSimilarities,
            SIMILARITY,
            _COMPARE_TEXTS,
        ),
        _route(
            "rerank",
            "Score texts against a query and rank them, the best first; `documents` are answered as by `/v1/rerank`.",
            TeiRankingBody,
            TeiRankingReply,
            rank_texts_or_documents,
            _RANK,
            error=TeiRankingErrorReply,
        ),
        _route(
            "predict",
            "Classify texts: by the classes of the model, or by `candidate_labels`.",
            TeiPredictBody,
            TeiPredictions,
            PREDICT,
            Example(
                "Which of two classes a text is of",
                {
                    "inputs": "We travel to the sea by train.",
                    "parameters": {"candidate_labels": ["travel", "cooking"]},
                },
                needs="extract",
            ),
        ),
        _route(
            "embeddings",
            "Embed texts, as OpenAI does.",
            EmbeddingsBody,
            EmbeddingsReply,
            EMBEDDINGS,
            *EXAMPLES,
            paths=("/embeddings", f"{_MODEL}/v1/embeddings", f"{_MODEL}/embeddings"),
            dialect="openai",
        ),
        _route(
            "anything",
            "Do what the body asks for: compare, rank or classify texts, or embed them as the model does.",
            TeiAnyBody,
            TeiAnyReply,
            choose_by_body,
            _EMBED_TEXTS,
            _COMPARE_TEXTS,
            _RANK,
            paths=("/", TEI_PREFIX + "{model:tei_model}"),
            error=TeiRankingErrorReply,
        ),
    )


def _route(
    name: str,
    about: str,
    body: type[BaseModel],
    reply: type[BaseModel],
    operation: Operation[Any] | Choose,
    *examples: Example,
    paths: tuple[str, ...] = (),
    dialect: Dialect = "tei",
    error: type[BaseModel] | None = None,
) -> Route:
    """Make the route `/name` at the root and below a model, or at other `paths`."""
    return Route(
        paths=paths or (f"/{name}", f"{_MODEL}/{name}"),
        name=name,
        about=about,
        body=body,
        reply=reply,
        operation=operation,
        dialect=dialect,
        error=error,
        tag="tei",
        examples=examples,
    )


async def rank_texts_or_documents(api: Api, call: Call, data: RawBody) -> Operation[Any]:
    """Choose by whether the body holds `texts` or `documents`."""
    names_documents = await api.body_threads.run(len(data), lambda: strict_json.contains(data, b'"documents"'))
    return _ranking(await _parse(api, data)) if names_documents else RANK_TEXTS


async def choose_by_body(api: Api, call: Call, data: RawBody) -> Operation[Any]:
    """Choose by the fields of the body, and by what the model does where they leave it open.

    Raises:
        InferenceError: The body is no JSON, or there is no such model.
    """
    body = await _parse(api, data)
    match wanted(body):
        case "ranks":
            return _ranking(body)
        case "similarity":
            return SIMILARITY
        case None if not await _classifies(api, call.model(_named(body))):
            return _EMBED_ANY
    return PREDICT


async def _parse(api: Api, data: RawBody) -> Any:
    return await api.body_threads.run(len(data), lambda: strict_json.loads(data))


def _ranking(body: Any) -> Operation[Any]:
    holds_documents = isinstance(body, dict) and body.get("texts") is None and body.get("documents") is not None
    return RANK_DOCUMENTS if holds_documents else RANK_TEXTS


def _named(body: Any) -> str | None:
    named = body.get("model") if isinstance(body, dict) else None
    return named if isinstance(named, str) else None


async def _classifies(api: Api, model: str) -> bool:
    operations = (await api.backend.describe(check_model_id(model))).operations
    return "extract" in operations and "encode" not in operations
