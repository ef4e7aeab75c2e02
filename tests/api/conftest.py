"""An application over a backend that does what a test tells it, and a client that needs no socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import httpx
import numpy as np
import pytest
from sie_sdk import wire

from sie_core.api import Gate, create_app
from sie_core.api.inference.direct import DirectApp
from sie_core.contracts import (
    Health,
    InferenceError,
    InferenceReply,
    InferenceRequest,
    ModelInfo,
    Timing,
    Usage,
)
from sie_core.settings import Settings

DIMS = 4


class TellTaleBackend:
    """Answers each text with its length in every dimension, or does what `act` says; remembers what it was asked."""

    def __init__(self) -> None:
        self.requests: list[InferenceRequest] = []
        self.cancelled = asyncio.Event()
        self.act: Callable[[InferenceRequest], Any] | None = None
        self.state = Health(None, None)
        self.truncated = 0
        self.computed: tuple[str, ...] = ()

    async def infer(self, request: InferenceRequest) -> InferenceReply:
        self.requests.append(request)
        try:
            if self.act is not None:
                await self.act(request)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return InferenceReply(
            [self._encode(item) for item in request.items],
            Timing(total_ms=12.345, queue_ms=1, tokenization_ms=2, inference_ms=9),
            Usage(input_tokens=sum(len(item.text or "") for item in request.items)),
            truncated=self.truncated,
            computed=self.computed,
        )

    def _encode(self, item: Any) -> bytes:
        values = np.full(DIMS, len(item.text or ""), np.float32)
        encoded = {"dense": {"dims": DIMS, "dtype": "float32", "values": values}}
        return wire.pack(encoded if item.id is None else {"id": item.id} | encoded)

    def models(self) -> list[ModelInfo]:
        return [self.model("org/model")]

    def model(self, model: str) -> ModelInfo:
        if model != "org/model":
            raise InferenceError("MODEL_NOT_FOUND", f"No model {model!r}; near: org/model.", param="model")
        return ModelInfo(model, ("text",), ("dense",), dims={"dense": DIMS}, state="loaded", matryoshka_dims=(2, 4))

    async def describe(self, model: str) -> ModelInfo:
        if model == "org/ids":
            return ModelInfo(model, ("text",), ("dense",), dims={}, state="loaded", accepts_token_ids=True)
        return self.model(model)

    def plugins(self) -> list[Mapping[str, Any]]:
        return [{"name": "fake", "state": "active", "registers": {"sie_model_families": ("fake",)}}]

    def health(self) -> Health:
        return self.state


@pytest.fixture
def backend() -> TellTaleBackend:
    return TellTaleBackend()


@pytest.fixture
def settings() -> Settings:
    return Settings(max_request_body_bytes=10_000, max_item_text_bytes=1_000, max_concurrent_requests=2)


@pytest.fixture
def gate(settings: Settings) -> Gate:
    return Gate(settings.max_concurrent_requests)


@pytest.fixture
def app(backend: TellTaleBackend, settings: Settings, gate: Gate) -> DirectApp:
    return create_app(backend, settings, gate=gate)


@pytest.fixture
async def client(app: DirectApp) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://sie", timeout=10) as client:
        yield client
