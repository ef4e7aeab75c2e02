"""The chain of weight tiers, nearest first, and what happens when none has the model.

It knows tiers by their contract only.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from pathlib import Path

from sie_core.cache.formats import holds_pickles, holds_safetensors, no_safetensors
from sie_core.contracts import ModelConfig, ModelLoadError, TierContext, WeightRequest, WeightTier
from sie_core.plugins import PluginSet
from sie_core.settings import Settings

log = logging.getLogger(__name__)


class WeightChain:
    """Asks tiers in order until one has the weights."""

    def __init__(self, tiers: Sequence[WeightTier]) -> None:
        self.tiers = tuple(tiers)

    def fetch(self, request: WeightRequest) -> Path:
        """Return a local folder of the weights. Runs on a loader thread and may take minutes.

        Raises:
            ModelLoadError: No tier gave them. The message names each tier and what it said; the class is that of the
                farthest tier that failed, or `NOT_FOUND` where none has the model.
        """
        said: list[tuple[str, ModelLoadError | None]] = []
        started = time.monotonic()
        for tier in self.tiers:
            try:
                folder = tier.fetch(request)
            except ModelLoadError as error:
                said.append((tier.name, error))
                continue
            if folder is not None:
                seconds = time.monotonic() - started
                log.info("weights of %s: tier %s, %.1f s, %s", request.repo_id, tier.name, seconds, folder)
                return folder
            said.append((tier.name, None))
        raise _nobody(request, said)

    def find(self, request: WeightRequest) -> tuple[str, Path] | None:
        """Return the tier and the folder that hold the weights on this machine already; never downloads."""
        peek = WeightRequest(request.repo_id, request.revision, peek=True)
        for tier in self.tiers:
            try:
                folder = tier.fetch(peek)
            except ModelLoadError:
                continue
            if folder is not None:
                return tier.name, folder
        return None


def build_chain(settings: Settings, plugins: PluginSet) -> WeightChain:
    """Make the chain of every registered tier that takes part under these settings."""
    context = TierContext(settings=settings, packages=plugins.weight_packages)
    factories = sorted(plugins.weight_tiers, key=lambda factory: (factory.order, factory.name))
    tiers = [tier for factory in factories if (tier := factory.create(context)) is not None]
    return WeightChain(tiers)


def fetch_weights(config: ModelConfig, chain: WeightChain) -> Path | None:
    """Return the folder of a model's weights: its own `weights_path`, else what the chain gives; None if weightless.

    Raises:
        ModelLoadError: `NOT_FOUND` where the named folder is missing, `CONFIG` where it holds pickled weights only,
            or what the chain raises.
    """
    if config.weightless:
        return None
    if config.weights_path is None:
        return chain.fetch(weight_request(config))
    folder = Path(config.weights_path)
    if not folder.is_dir():
        raise ModelLoadError("NOT_FOUND", f"The `weights_path` of {config.id} is not a folder on this machine.")
    if holds_pickles(folder) and not holds_safetensors(folder):
        raise ModelLoadError("CONFIG", no_safetensors(f"The `weights_path` of {config.id}", pickled=True) + ".")
    return folder


def find_weights(config: ModelConfig, chain: WeightChain) -> tuple[str, Path] | None:
    """Return where a model's weights are on this machine, with the tier's name (`weights_path` for its own folder)."""
    if config.weightless:
        return None
    if config.weights_path is None:
        return chain.find(weight_request(config))
    folder = Path(config.weights_path)
    return ("weights_path", folder) if folder.is_dir() else None


def weight_request(config: ModelConfig) -> WeightRequest:
    """Say which repository and revision a config names."""
    return WeightRequest(config.hf_id or config.id, config.hf_revision)


def _nobody(request: WeightRequest, said: Sequence[tuple[str, ModelLoadError | None]]) -> ModelLoadError:
    lines = "; ".join(f"{name}: {error or 'does not have it'}" for name, error in said) or "no tier is configured"
    hub = " or allow the Hub to be asked (SIE_HF_FALLBACK=true)" if all(name != "hub" for name, _ in said) else ""
    remedy = f"Put a folder with its weights below SIE_MODELS_DIR, fill the local cache{hub}."
    failed = [error for _, error in said if error is not None and error.failure != "NOT_FOUND"]
    failure = failed[-1].failure if failed else "NOT_FOUND"
    revision = f" at revision {request.revision}" if request.revision else ""
    return ModelLoadError(failure, f"No weights of {request.repo_id}{revision}: {lines}. {remedy}")
