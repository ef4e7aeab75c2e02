"""LoRA: low-rank adapters that requests choose by name, over one set of base weights."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class LoraConfig:
    """A LoRA adapter declared by a model config: the name for requests, and the location of its weights."""

    name: str
    hf_id: str | None = None
    hf_revision: str | None = None
    _: KW_ONLY
    weights_path: str | None = None
    """A local folder in PEFT's layout."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Lora:
    """A LoRA adapter that `Adapter.load_lora` loaded.

    Compared by identity: a run holds units of one adapter, or of none, and never of two loads of the same name. Its
    memory is freed with the last reference of the engine and of units.
    """

    name: str
    """Name in requests."""
    payload: Any
    """The adapter's own."""
    memory_bytes: int = 0
