"""The routes of text-embeddings-inference (TEI) that run no model: `/info`, `/health`, `/ping`."""

from __future__ import annotations

from typing import Final

import orjson
from pydantic import Field
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from sie_core import __version__
from sie_core.api.body.negotiation import JSON_TYPE
from sie_core.api.context import Api, ready_problem
from sie_core.api.http.envelopes import TEI_PREFIX
from sie_core.api.http.limits import MAX_EMBEDDING_INPUTS
from sie_core.api.http.model_id import check_model_id
from sie_core.api.openapi.descriptions import lookup, probe
from sie_core.api.schema import Schema
from sie_core.contracts import InferenceError, ModelInfo

NAMES = ("info", "health")
"""The GET routes below a model."""


class TeiInfo(Schema):
    """What is served, and its limits. What is not known yet is left out: a model that is not loaded may not tell it."""

    model_id: str
    model_sha: str | None
    model_dtype: str | None = None
    model_type: dict[str, dict[str, object]] = Field(description="`embedding`, `reranker` or `classifier`.")
    max_concurrent_requests: int
    max_input_length: int | None = None
    max_batch_tokens: int
    max_batch_requests: int | None = None
    max_client_batch_size: int = Field(examples=[MAX_EMBEDDING_INPUTS])
    auto_truncate: bool
    tokenization_workers: int | None = None
    version: str
    sha: str | None
    docker_label: str | None


async def default_info(api: Api, request: Request) -> Response:
    """Describe the default model."""
    return _info(api, api.settings.default_model)


async def info(api: Api, request: Request) -> Response:
    """Describe a model."""
    return _info(api, request.path_params["model"])


async def ping(api: Api, request: Request) -> Response:
    """Say whether new requests are welcome, as `/readyz` does."""
    return _well(api)


async def model_health(api: Api, request: Request) -> Response:
    """Say whether requests to a model are welcome, loaded or not; 424 where its last load failed."""
    served = api.backend.model(check_model_id(request.path_params["model"]))
    if served.state == "failed":
        why = (served.last_error or {}).get("message", "see the server's log")
        raise InferenceError("MODEL_LOAD_FAILED", f"{served.id} could not be loaded: {why}")
    return _well(api)


_MODEL: Final = TEI_PREFIX + "{model:path}"
_HEALTH: Final = "Requests to the model are welcome."
ENDPOINTS: Final = (
    lookup("/info", default_info, TeiInfo, 404, tag="tei", dialect="tei"),
    lookup(f"{_MODEL}/info", info, TeiInfo, 404, tag="tei", dialect="tei"),
    probe("/ping", ping, "New requests are welcome.", tag="tei", dialect="tei", can_fail=False),
    probe(f"{_MODEL}/health", model_health, _HEALTH, tag="tei", dialect="tei", can_fail=False),
)


def _well(api: Api) -> Response:
    problem = ready_problem(api, api.backend.health())
    if problem is not None:
        raise InferenceError("QUEUE_UNAVAILABLE", f"The server is not ready: {problem}.")
    return PlainTextResponse("ok")


def _info(api: Api, model: str) -> Response:
    served, settings = api.backend.model(check_model_id(model)), api.settings
    told = {
        "model_dtype": served.precision,
        "max_input_length": served.max_sequence_length,
        "max_batch_requests": settings.max_batch_requests,
        "tokenization_workers": settings.preprocessor_workers,
    }
    content = {
        "model_id": served.id,
        "model_sha": served.revision,
        "model_type": _model_type(served),
        "max_concurrent_requests": settings.max_concurrent_requests,
        "max_batch_tokens": settings.max_batch_cost,
        "max_client_batch_size": MAX_EMBEDDING_INPUTS,
        "auto_truncate": True,
        "version": __version__,
        "sha": None,
        "docker_label": None,
        **{name: value for name, value in told.items() if value is not None},
    }
    return Response(orjson.dumps(content), media_type=JSON_TYPE)


def _model_type(model: ModelInfo) -> dict[str, dict[str, object]]:
    """Say whether it ranks, classifies or embeds; the kind of pooling is known to the adapter alone."""
    kind = {"score": "reranker", "extract": "classifier"}
    if model.operations and "encode" not in model.operations:
        names = {str(number): name for number, name in enumerate(model.classes)}
        numbers = {name: number for number, name in enumerate(model.classes)}
        return {kind[model.operations[0]]: {"id2label": names, "label2id": numbers}}
    return {"embedding": {"pooling": "splade" if model.outputs == ("sparse",) else "unknown"}}
