"""Every limit of the HTTP API in one table: what is bounded, by how much, and what a violation answers.

The values enforced are read from here or from the settings; it must not know who enforces them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MAX_ITEMS: Final = 16_384
"""Items of one request on a native route."""
MAX_EMBEDDING_INPUTS: Final = 2_048
"""Inputs of one request on `/v1/embeddings`, as OpenAI has it."""
MAX_MODEL_ID_CHARS: Final = 256
"""Characters of a model id in a path or body."""
MAX_JSON_DEPTH: Final = 254
"""Levels of nesting of a JSON body: what orjson writes as well as reads."""


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit. `value` is its default where a setting rules it."""

    name: str
    value: int | float | str
    setting: str | None
    """The field of `Settings` that sets it; None for a fixed one."""
    code: str
    """The code of the error table that a violation answers."""


LIMITS: Final = (
    Limit("Request body, bytes", 34 * 2**20, "max_request_body_bytes", "PAYLOAD_TOO_LARGE"),
    Limit("Text and metadata of one item, bytes", 2 * 2**20, "max_item_text_bytes", "INVALID_INPUT"),
    Limit("Items of one native request", MAX_ITEMS, None, "INVALID_INPUT"),
    Limit("Inputs of one /v1/embeddings request", MAX_EMBEDDING_INPUTS, None, "INVALID_INPUT"),
    Limit("Characters of a model id", MAX_MODEL_ID_CHARS, None, "INVALID_INPUT"),
    Limit("Nesting of a JSON body", MAX_JSON_DEPTH, None, "INVALID_INPUT"),
    Limit("Tokens of a text, with truncation refused", "the model's maximum length", None, "INPUT_TOO_LONG"),
    Limit("Requests in flight", 512, "max_concurrent_requests", "QUEUE_FULL"),
    Limit("Cost units queued", "64 batches", "max_queued_cost", "QUEUE_FULL"),
    Limit("Wait for a model to load on OpenAI-shaped routes, s", 30.0, "model_wait_s", "MODEL_LOADING"),
    Limit("A request's own deadline, X-SIE-Timeout-Ms", "none", None, "DEADLINE_EXCEEDED"),
    Limit("Requests in flight after SIGTERM, s", 25.0, "drain_timeout_s", "QUEUE_UNAVAILABLE"),
)
"""The table of `docs/limits.md`."""
