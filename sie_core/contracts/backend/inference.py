"""The backend of the HTTP API: it answers requests with encoded items and counts.

The standalone server uses the engine as backend, a gateway a queue; the API is the same for both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from sie_core.contracts.backend.requests import InferenceRequest, Operation

ModelState = Literal["available", "loading", "loaded", "unloading", "failed"]


@dataclass(frozen=True, slots=True)
class Timing:
    """Where a request's time went, in milliseconds."""

    total_ms: float = 0.0
    queue_ms: float = 0.0
    tokenization_ms: float = 0.0
    inference_ms: float = 0.0
    postprocessing_ms: float | None = None
    transit_ms: float | None = None
    """Of `queue_ms`, what passed between a gateway and its worker; None where there is none between."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a request consumed, counted after tokenisation and truncation."""

    input_tokens: int = 0
    """Tokens of every unit: those of a query count in each pair it is part of."""
    images: int = 0


@dataclass(frozen=True, slots=True)
class InferenceReply:
    """The answer: `items[i]` is the encoded item of input i.

    An encoded item is one msgpack map in the shape the wire contract gives an item of the operation, as
    `sie_sdk.wire.pack` writes it; the API splices it into a msgpack body unread. That of `score` is a map of `item_id`
    and `score`, in the order of the documents: the API ranks them.
    """

    items: Sequence[bytes]
    timing: Timing
    usage: Usage
    truncated: int = 0
    """How many items were cut to the model's length."""
    lora: str | None = None
    """The LoRA adapter that was applied."""
    ignored_options: tuple[str, ...] = ()
    """The request's options that were passed over, as only other operations or families read them, and `input_type`
    where the model has prompts and none for it."""
    query: Usage = Usage()
    """Of `usage`, what the query took where it was encoded once for all items: a gateway that asks for some items at a
    time counts it once."""
    query_truncated: bool = False
    """Whether that query is one of `truncated`."""
    config: str | None = None
    """Equal for replies that were computed by equal configs of a model; None where no config service changes them."""
    workers: tuple[str, ...] = ()
    """The workers behind a gateway that computed it."""
    computed: tuple[str, ...] = ()
    """What computed it, as `ModelFacts.computed` says it; several where workers differ."""


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A served model as `/v1/models` shows it."""

    id: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    """`dense`, `sparse`, `multivector`; `score` where the model has scores of its own; `json` where it extracts."""
    dims: Mapping[str, int]
    """Of the outputs whose size its config or its weights tell."""
    state: ModelState
    max_sequence_length: int | None = None
    revision: str | None = None
    last_error: Mapping[str, Any] | None = None
    """`code`, `message`, `attempts`, `permanent` of the last failed load."""
    profiles: tuple[str, ...] = ("default",)
    adapter: str | None = None
    matryoshka_dims: tuple[int, ...] = ()
    memory_bytes: int | None = None
    """What its last load was measured to take, the LoRA adapters loaded now included; None before the first load."""
    last_used_at: float | None = None
    """When it was last used, in seconds since 1970; None where it never was."""
    pinned: bool = False
    """Whether it is never unloaded to make room, nor when idle."""
    precision: str | None = None
    """What it computes in; None before it is loaded."""
    runner: str | None = None
    """What runs it, where its family names that; None before it is loaded."""
    notes: Mapping[str, str] = field(default_factory=dict)
    operations: tuple[Operation, ...] = ()
    """What it answers, as far as its config or its weights tell; `score` wherever it encodes."""
    classes: tuple[str, ...] = ()
    """What a classifier tells apart, in the order of its logits, as far as its weights tell."""
    loras: tuple[str, ...] = ()
    """The LoRA adapters its config declares, then the others that are loaded."""
    load_stages_s: Mapping[str, float] = field(default_factory=dict)
    """Seconds each stage of the last load took."""
    available: bool = False
    """Whether a load needs to fetch nothing: its weights are here, or it needs none."""
    bundles: tuple[str, ...] = ()
    """The bundles whose workers serve it, the one that is asked first; empty where there is no config service."""
    workers: int | None = None
    """How many workers of the first bundle take work; None where there is no config service."""


@dataclass(frozen=True, slots=True)
class Health:
    """What health endpoints report; a problem is None where there is none."""

    live_problem: str | None
    ready_problem: str | None
    notes: tuple[str, ...] = ()
    """Problems that an operator should look at while requests are still answered; fit for a client."""


class InferenceBackend(Protocol):
    """Answers requests. All methods are called on the event loop."""

    async def infer(self, request: InferenceRequest) -> InferenceReply:
        """Answer `request`.

        Cancelling the call drops its queued work.

        Raises:
            InferenceError: Every way a request can fail, with its code.
        """
        ...

    def models(self) -> list[ModelInfo]:
        """List every served model."""
        ...

    def model(self, model: str) -> ModelInfo:
        """Describe one model.

        Raises:
            InferenceError: `MODEL_NOT_FOUND`, naming near matches.
        """
        ...

    def accepts_token_ids(self, model: str) -> bool:
        """Whether the model's config takes token ids in place of text."""
        ...

    def plugins(self) -> list[Mapping[str, Any]]:
        """Describe every plugin, broken ones with their cause."""
        ...

    def health(self) -> Health:
        """Say what is wrong with the backend, if anything."""
        ...
