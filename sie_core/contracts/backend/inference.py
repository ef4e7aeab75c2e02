"""The backend of the HTTP API: it answers requests with encoded items and counts.

The standalone server uses the engine as backend, a gateway a queue; the API is the same for both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal, Protocol

from sie_core.contracts.backend.requests import InferenceRequest, Operation

ModelState = Literal["available", "loading", "loaded", "unloading", "failed"]


@dataclass(frozen=True, slots=True)
class Timing:
    """Where a request's time went, in milliseconds."""

    total_ms: float = 0.0
    queue_ms: float = 0.0
    tokenization_ms: float = 0.0
    _: KW_ONLY
    inference_ms: float = 0.0
    postprocessing_ms: float | None = None
    transit_ms: float | None = None
    """The part of `queue_ms` spent in transit between gateway and worker; None without a gateway."""

    @property
    def stages_s(self) -> dict[str, float]:
        """Seconds of each stage, and their `total`; 0 for a stage that was not measured."""
        return {
            "tokenization": self.tokenization_ms / 1000,
            "queue": self.queue_ms / 1000,
            "inference": self.inference_ms / 1000,
            "postprocessing": (self.postprocessing_ms or 0.0) / 1000,
            "total": self.total_ms / 1000,
        }


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens and images that a request consumed, counted after tokenisation and truncation."""

    input_tokens: int = 0
    """Tokens of all units; the tokens of a query count in each of its pairs."""
    images: int = 0


@dataclass(frozen=True, slots=True)
class InferenceReply:
    """The answer: `items[i]` is the encoded item of input i.

    An encoded item is one msgpack map in the wire format of the operation, as written by `sie_sdk.wire.pack`; the API
    copies it into a msgpack body without decoding it. For `score`, the map holds `item_id` and `score`, in the order of
    the documents; the API ranks them.
    """

    items: Sequence[bytes]
    timing: Timing
    usage: Usage
    _: KW_ONLY
    truncated: int = 0
    """Number of items that were cut to the model's length."""
    lora: str | None = None
    """The LoRA adapter that was applied."""
    ignored_options: tuple[str, ...] = ()
    """Options of the request that were ignored because only other operations or families read them.

    `input_type` is listed if the model has prompts but none for that role.
    """
    query: Usage = Usage()
    """The query's part of `usage`, if the query was encoded once for all items.

    A gateway that splits a request counts it once.
    """
    query_truncated: bool = False
    """Whether that query is one of `truncated`."""
    config: str | None = None
    """Identifies the model's config: equal configs give equal values. None without a config service."""
    workers: tuple[str, ...] = ()
    """The workers behind a gateway that computed it."""
    computed: tuple[str, ...] = ()
    """What computed the reply, see `ModelFacts.computed`; several if workers differ."""


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A served model as `/v1/models` shows it."""

    id: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    """`dense`, `sparse`, `multivector`; `score` if the model has scores of its own; `json` if it extracts."""
    _: KW_ONLY
    dims: Mapping[str, int]
    """Sizes of the outputs for which config or weights state one."""
    state: ModelState
    max_sequence_length: int | None = None
    revision: str | None = None
    last_error: Mapping[str, Any] | None = None
    """`code`, `message`, `attempts`, `permanent` of the last failed load."""
    profiles: tuple[str, ...] = ("default",)
    adapter: str | None = None
    matryoshka_dims: tuple[int, ...] = ()
    memory_bytes: int | None = None
    """Measured bytes of the last load, including the LoRA adapters loaded now; None before the first load."""
    last_used_at: float | None = None
    """Time of the last use, in seconds since 1970; None if never used."""
    pinned: bool = False
    """Whether it is never unloaded, neither to make room nor when idle."""
    precision: str | None = None
    """Precision of the computation; None before the model is loaded."""
    runner: str | None = None
    """Runner that executes the model, if its family names one; None before the model is loaded."""
    notes: Mapping[str, str] = field(default_factory=dict)
    operations: tuple[Operation, ...] = ()
    """Operations that the model answers, as far as config or weights tell; includes `score` for every model that
    encodes.
    """
    classes: tuple[str, ...] = ()
    """A classifier's labels in the order of its logits, as far as the weights tell."""
    loras: tuple[str, ...] = ()
    """The LoRA adapters that its config declares, then other loaded ones."""
    load_stages_s: Mapping[str, float] = field(default_factory=dict)
    """Seconds each stage of the last load took."""
    accepts_token_ids: bool = False
    """Whether its config takes token ids in place of text."""
    available: bool = False
    """Whether a load needs no fetch: its weights are here, or it needs none."""
    bundles: tuple[str, ...] = ()
    """Bundles whose workers serve the model, the preferred one first; empty without a config service."""
    workers: int | None = None
    """Number of workers of the first bundle that accept work; None without a config service."""


@dataclass(frozen=True, slots=True)
class Health:
    """State for the health endpoints; a problem is None if it does not exist."""

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

    async def describe(self, model: str) -> ModelInfo:
        """Describe one model for a request that is being answered; raises as `model`, or as `infer`."""
        ...

    def plugins(self) -> list[Mapping[str, Any]]:
        """Describe every plugin, broken ones with their cause."""
        ...

    def health(self) -> Health:
        """Describe what is wrong with the backend, if anything."""
        ...
