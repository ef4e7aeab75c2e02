"""The parts of a reply's body that native operations share: timing, usage and the backend's encoded items."""

from __future__ import annotations

from itertools import chain
from typing import Any, cast

from sie_sdk import wire

from sie_core.api.body.json_body import Entries, write_json
from sie_core.api.body.negotiation import JSON_TYPE
from sie_core.api.body.pieces import Content, Pieces, in_pieces
from sie_core.api.schema import Schema
from sie_core.contracts import InferenceReply


class TruncationOutput(Schema):
    """What was cut of a text, in tokens."""

    tokens: int
    kept: int
    at_least: bool | None = None
    """Set where there are more tokens than `tokens`: the middle of a very long text is not read."""


class TimingOutput(Schema):
    """Where the time went, in milliseconds."""

    total_ms: float
    queue_ms: float
    tokenization_ms: float
    inference_ms: float
    postprocessing_ms: float | None


class UsageOutput(Schema):
    """What was consumed, counted after truncation."""

    input_tokens: int
    images: int | None = None


def spent(reply: InferenceReply) -> dict[str, Any]:
    """Return the keys `timing`, `usage` (with `images` where there were some) and, where one was applied, `lora`."""
    timing = reply.timing
    usage = {"input_tokens": reply.usage.input_tokens}
    if reply.usage.images:
        usage["images"] = reply.usage.images
    return {
        "timing": {
            "total_ms": round(timing.total_ms, 3),
            "queue_ms": round(timing.queue_ms, 3),
            "tokenization_ms": round(timing.tokenization_ms, 3),
            "inference_ms": round(timing.inference_ms, 3),
            "postprocessing_ms": None if timing.postprocessing_ms is None else round(timing.postprocessing_ms, 3),
        },
        "usage": usage,
        **({"lora": reply.lora} if reply.lora else {}),
    }


def items_reply(model: str, reply: InferenceReply, media_type: str) -> Content:
    """Write a body with the backend's encoded items: unread in msgpack, decoded in JSON."""
    head: dict[str, Any] = {"model": model, **spent(reply)}
    size = size_of(reply)
    if media_type == JSON_TYPE:
        return write_json({**head, "items": Entries(map(read_item, reply.items))}, size)
    before = wire.pack_before_items(head, len(reply.items))
    return in_pieces(Pieces(chain((before,), reply.items), len(before) + size), size)


def size_of(reply: InferenceReply) -> int:
    """Return the bytes of the backend's items."""
    return sum(map(len, reply.items))


def read_item(packed: bytes) -> dict[str, Any]:
    """Decode an item of the backend, with as many entries as it may have."""
    return cast("dict[str, Any]", wire.unpack(packed, longest=None))
