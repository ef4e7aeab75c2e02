"""The OpenAPI document: FastAPI's paths over our own schemas. It must not know what a route does."""

from __future__ import annotations

from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from sie_core import __version__
from sie_core.api.cohere.schema import CohereEmbedBody, CohereEmbedReply
from sie_core.api.error_schema import CohereErrorReply, ErrorReply, OpenAIErrorReply, TeiErrorReply
from sie_core.api.native.encode_schema import EncodeBody, EncodeReply
from sie_core.api.native.extract_schema import ExtractBody, ExtractReply
from sie_core.api.native.score_schema import ScoreBody, ScoreReply
from sie_core.api.openai.schema import EmbeddingsBody, EmbeddingsReply
from sie_core.api.ops.health import HealthReply
from sie_core.api.ops.models_schema import MergedModel, ModelsReply
from sie_core.api.ops.plugins import PluginsReply
from sie_core.api.rerank.schema import CohereRerankBody, CohereRerankReply, RerankBody, RerankReply
from sie_core.api.tei.decode import TeiDecodeBody, TeiTexts
from sie_core.api.tei.lookups import TeiInfo
from sie_core.api.tei.predict import TeiPredictBody, TeiPredictions
from sie_core.api.tei.root import TeiAnyBody, TeiAnyReply
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
from sie_core.api.tei.similarity import TeiSimilarities, TeiSimilarityBody
from sie_core.api.tei.tokenize import TeiTokenizeBody, TeiTokens

SCHEMAS: Final[tuple[type[BaseModel], ...]] = (
    CohereEmbedBody,
    CohereEmbedReply,
    CohereErrorReply,
    CohereRerankBody,
    CohereRerankReply,
    EmbeddingsBody,
    EmbeddingsReply,
    EncodeBody,
    EncodeReply,
    ErrorReply,
    ExtractBody,
    ExtractReply,
    HealthReply,
    MergedModel,
    ModelsReply,
    OpenAIErrorReply,
    PluginsReply,
    RerankBody,
    RerankReply,
    ScoreBody,
    ScoreReply,
    TeiAnyBody,
    TeiAnyReply,
    TeiDecodeBody,
    TeiEmbedAllBody,
    TeiEmbedBody,
    TeiErrorReply,
    TeiInfo,
    TeiPredictBody,
    TeiPredictions,
    TeiRankingBody,
    TeiRankingErrorReply,
    TeiRankingReply,
    TeiSimilarities,
    TeiSimilarityBody,
    TeiSparseBody,
    TeiSparseVectors,
    TeiTexts,
    TeiTokenVectors,
    TeiTokenizeBody,
    TeiTokens,
    TeiVectors,
)
"""Every body a route refers to."""
_ABOUT: Final = """\
Bodies are JSON or msgpack (`application/msgpack`, arrays in msgpack-numpy's form). An explicit `Accept` decides the
format of the answer; without one it is that of the request. Every error is JSON: `{"error": {"code", "message", …}}`.
"""


def build_openapi(app: FastAPI) -> dict[str, Any]:
    """Build the document of `app`, once."""
    if app.openapi_schema is None:
        document = get_openapi(title="SIE", version=__version__, description=_ABOUT, routes=app.routes)
        _, definitions = models_json_schema(
            [(schema, "validation") for schema in SCHEMAS], ref_template="#/components/schemas/{model}"
        )
        document.setdefault("components", {}).setdefault("schemas", {}).update(definitions["$defs"])
        app.openapi_schema = document
    return app.openapi_schema
