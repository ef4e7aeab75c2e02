"""What a sidecar asks of its adapter process beside work: a load, before work for it comes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sie_sdk.wire import WireError, pack, unpack

from sie_cluster.messages.frames import FrameError


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be loaded."""

    model: str
    lora: str | None = None
    """One of its LoRA adapters, beside the model."""


def encode_wish(wish: Wish) -> bytes:
    """Write a wish."""
    return pack([wish.model, wish.lora])


def decode_wish(payload: bytes) -> Wish:
    """Read a wish.

    Raises:
        FrameError: It is none.
    """
    try:
        told: Any = unpack(payload)
        model, lora = told
    except (WireError, TypeError, ValueError) as error:
        raise FrameError(f"what is to be loaded cannot be read ({type(error).__name__})") from None
    if not isinstance(model, str) or not isinstance(lora, str | None):
        raise FrameError("what is to be loaded has no name")
    return Wish(model, lora)
