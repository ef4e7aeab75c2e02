"""Every inference route, in the order in which paths are matched."""

from __future__ import annotations

from sie_core.api.cohere import embed
from sie_core.api.inference.route import Route
from sie_core.api.native import encode, extract, score
from sie_core.api.ollama import embed as ollama
from sie_core.api.openai import embeddings
from sie_core.api.rerank import nvidia, rerank
from sie_core.api.tei.routes import tei_routes
from sie_core.api.vllm import classify as vllm_classify
from sie_core.api.vllm import score as vllm_score


def inference_routes() -> tuple[Route, ...]:
    """List the routes."""
    return (
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
