"""What a write gives: the answer of who asked, and the change that others are told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sie_bundle.bundles.registry import Registry


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a write that succeeded; one that fails raises `InferenceError`."""

    status: int
    body: Mapping[str, Any]
    """JSON."""


@dataclass(frozen=True, slots=True)
class Change:
    """One change of a model's config."""

    epoch: int
    """After it."""
    model_id: str
    text: str | None
    """The YAML in force after it; None where the model is gone."""
    profiles_added: tuple[str, ...]
    affected_bundles: tuple[str, ...]
    """The bundles that served the model before or serve it afterwards, by priority."""
    registry: Registry
    """After it."""
