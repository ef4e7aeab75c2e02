"""The facts of a model that only its weights tell: what a worker reports of them, and how they are kept."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from sie_sdk.wire import WireError, pack, unpack

from sie_core.contracts import ModelConfig, ModelInfo

FIELDS = ("inputs", "outputs", "dims", "max_sequence_length", "matryoshka_dims", "operations", "classes")
_TUPLES = frozenset({"inputs", "outputs", "matryoshka_dims", "operations", "classes"})

Facts = Mapping[str, Any]
"""The fields of a `ModelInfo` that are facts."""


def facts_of(info: ModelInfo) -> Facts | None:
    """Return the facts that a worker reports; None where it has read no more than the config."""
    if info.state != "loaded" and not info.available:
        return None
    return {name: value for name, value in asdict(info).items() if name in FIELDS}


def with_facts(info: ModelInfo, facts: Facts) -> ModelInfo:
    """Complete the description that a config gives of a model."""
    return replace(info, **facts)


def key_of(model_id: str) -> str:
    """Name the entry of a model."""
    return hashlib.blake2b(model_id.encode(), digest_size=16).hexdigest()


def hash_of(config: ModelConfig) -> str:
    """Hash a config, as it is written."""
    return hashlib.sha256((config.text or json.dumps(dict(config.content), sort_keys=True)).encode()).hexdigest()


def encode_facts(config: ModelConfig, facts: Mapping[str, Facts]) -> bytes:
    """Write the facts of a config's models, by the ids they are listed under."""
    return pack({"id": config.id, "hash": hash_of(config), "facts": facts})


def decode_facts(value: bytes, config: ModelConfig) -> dict[str, Facts]:
    """Read them; empty where they cannot be read or are those of another config."""
    try:
        told: Any = unpack(value)
        if (told["id"], told["hash"]) != (config.id, hash_of(config)):
            return {}
        return {str(name): _checked(facts) for name, facts in told["facts"].items()}
    except (WireError, TypeError, ValueError, KeyError, AttributeError):
        return {}


def _checked(facts: Mapping[str, Any]) -> Facts:
    return {name: tuple(facts[name]) if name in _TUPLES else facts[name] for name in FIELDS}
