"""The list of routes: paths, methods, dialects and handlers, in the order in which they are matched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sie_core.api.cohere import embed
from sie_core.api.context import Api
from sie_core.api.endpoint import Endpoint
from sie_core.api.http.envelopes import CONFIGS_PREFIX, TEI_PREFIX, Dialect
from sie_core.api.inference.described import endpoints_of
from sie_core.api.inference.route import Route
from sie_core.api.native import encode, extract, score
from sie_core.api.ollama import embed as ollama
from sie_core.api.ollama import lookups as ollama_lookups
from sie_core.api.openai import embeddings
from sie_core.api.ops import health, metrics, models, plugins
from sie_core.api.pages import routes as pages
from sie_core.api.pools import routes as pools
from sie_core.api.rerank import nvidia, rerank
from sie_core.api.tei import lookups as tei_lookups
from sie_core.api.tei.routes import tei_routes
from sie_core.api.vllm import classify as vllm_classify
from sie_core.api.vllm import score as vllm_score

INFERENCE: Final[tuple[Route, ...]] = (
    encode.ROUTE,
    score.ROUTE,
    extract.ROUTE,
    embeddings.ROUTE,
    *embed.ROUTES,
    *rerank.ROUTES,
    nvidia.ROUTE,
    *ollama.ROUTES,
    vllm_score.ROUTE,
    vllm_classify.ROUTE,
    *tei_routes(),
)
"""The routes that models answer."""

DOCUMENTED: Final[tuple[Endpoint, ...]] = (
    *(endpoint for route in INFERENCE for endpoint in endpoints_of(route)),
    *models.ENDPOINTS,
    *plugins.ENDPOINTS,
    *health.ENDPOINTS,
    *metrics.ENDPOINTS,
    *tei_lookups.ENDPOINTS,
    *ollama_lookups.ENDPOINTS,
    *pages.ENDPOINTS,
)
"""The routes of every server."""

_NATIVE: Final = ("/v1/encode", "/v1/score/", "/v1/extract", "/v1/models", "/v1/plugins", "/v1/pools")
BELOW: Final[dict[str, Dialect]] = {
    TEI_PREFIX: "tei",
    "/api/": "ollama",
    "/v2/": "cohere",
    CONFIGS_PREFIX: "configs",
    **dict.fromkeys(_NATIVE, "native"),
    "/v1/": "openai",
}
"""The dialect of a path that no route has, by its prefix; the first that fits counts. Every other path is native.

OpenAI's clients know many paths below `/v1/` that this server has not.
"""


def served(api: Api, more: Sequence[Endpoint] = ()) -> tuple[Endpoint, ...]:
    """List the routes of one server, `more` of its own among them."""
    return (*DOCUMENTED, *more, *(pools.NO_POOLS if api.pools is None else pools.ENDPOINTS))
