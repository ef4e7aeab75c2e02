"""What a sidecar asks of its adapter process beside work: a load, before work for it comes."""

from __future__ import annotations

from typing import NamedTuple

from pydantic import TypeAdapter
from sie_sdk.wire import pack

from sie_cluster.messages.frames import read_as


class Wish(NamedTuple):
    """What is to be loaded."""

    model: str
    lora: str | None = None
    """One of its LoRA adapters, beside the model."""


_WISH = TypeAdapter(Wish)


def encode_wish(wish: Wish) -> bytes:
    """Write a wish."""
    return pack(list(wish))


def decode_wish(payload: bytes) -> Wish:
    """Read a wish.

    Raises:
        FrameError: It is none.
    """
    return read_as(_WISH, payload, "what is to be loaded")
