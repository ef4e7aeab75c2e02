"""What a write gives: the answer of who asked, and the change that others are told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sie_bundle.bundles.registry import Registry

from sie_cluster.config_service.held import Held
from sie_cluster.messages.export import bundles_by_profile


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a write that succeeded; one that fails raises `InferenceError`."""

    status: int
    body: Mapping[str, Any]
    """JSON."""


@dataclass(frozen=True, slots=True)
class Change:
    """One change of a model's config."""

    model_id: str
    source: str
    """Where the config comes from after it: `api` or `filesystem`."""
    profiles_added: tuple[str, ...]
    affected_bundles: tuple[str, ...]
    """The bundles that served the model before or serve it afterwards, by priority."""
    registry: Registry
    """After it."""


def last_change(held: Held) -> Change | None:
    """Return the last change, to be told once more; None where there is none."""
    model_id = next((id_ for id_, epoch in held.state.epochs.items() if epoch == held.epoch), None)
    if model_id is None:
        return None
    config = held.registry.catalog.configs.get(model_id)
    serving = {} if config is None else bundles_by_profile(config, held.registry)
    bundles = tuple(name for name in held.registry.bundles if any(name in each for each in serving.values()))
    return Change(model_id, held.source(model_id), (), bundles, held.registry)
