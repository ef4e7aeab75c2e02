"""The bodies of `/v1/models`: one shape that SIE's clients and OpenAI's both read."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from sie_core.api.schema import Schema
from sie_core.contracts import ModelState, Operation

LEFT_OUT: Any = Field(default_factory=lambda: None)
"""Makes a key one that is left out where nothing is known."""


class LoadError(Schema):
    """The last failed load."""

    code: str
    message: str
    attempts: int
    permanent: bool


class ProfileBody(Schema):
    """A profile of a model, and the process that serves it."""

    is_default: bool
    identity: str | None
    remote_contract_sha256: str | None
    remote_execution_sha256: str | None
    runtime_instance_id: str | None


class RoutingBody(Schema):
    """Where requests are answered; both null where that is here."""

    policy: str | None
    upstream_kind: str | None


class OpenAIModel(Schema):
    """A model as OpenAI lists it."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class ModelBody(Schema):
    """A model as SIE lists it."""

    name: str
    inputs: list[str]
    outputs: list[str]
    operations: list[Operation]
    dims: dict[str, int]
    loaded: bool
    state: ModelState
    last_error: LoadError | None
    max_sequence_length: int = LEFT_OUT
    profiles: dict[str, ProfileBody]
    revision: str = LEFT_OUT
    capabilities: dict[str, Any] | None
    routing: RoutingBody
    adapter: str = LEFT_OUT
    precision: str = LEFT_OUT
    runner: str = LEFT_OUT
    matryoshka_dims: list[int]
    memory_bytes: int = LEFT_OUT
    last_used_at: float = LEFT_OUT
    pinned: bool
    notes: dict[str, str]
    classes: list[str]
    loras: list[str]
    load_stages_s: dict[str, float]
    available: bool
    bundles: list[str] = LEFT_OUT
    workers: int = LEFT_OUT


class MergedModel(ModelBody):
    """A model as both list it."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class ModelsReply(Schema):
    """Every served model, once for each kind of client."""

    object: Literal["list"]
    data: list[OpenAIModel]
    models: list[ModelBody]
