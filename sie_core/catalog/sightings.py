"""What is known of a model before its load: whether its weights are on this machine, and what their files say."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from sie_core.cache import WeightChain, find_weights
from sie_core.catalog.cards import read_card
from sie_core.catalog.families import choose_family
from sie_core.contracts import Device, ModelCard, ModelFacts, ModelLoadError, ResolvedModel, is_pickled
from sie_core.plugins import PluginSet
from sie_core.plugins.calls import HungError

PREVIEW_LIMIT_S = 10.0
"""How long a preview may take; the first of a family imports it."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """A model that a load finds without fetching anything."""

    tier: str | None = None
    """Which tier has the weights; None where it needs none."""
    folder: Path | None = None
    facts: ModelFacts | None = None
    """What the model's family expects of a load; None where it does not say."""


def look(
    models: Iterable[ResolvedModel],
    chain: WeightChain,
    plugins: PluginSet,
    device: Device,
    preview_s: float = PREVIEW_LIMIT_S,
) -> dict[str, Sighting]:
    """Look for the weights of models on this machine, and read what their files say; return it by id."""
    seen = {model.id: see(model, chain, plugins, device, preview_s) for model in models}
    return {name: sighting for name, sighting in seen.items() if sighting is not None}


def see(
    model: ResolvedModel,
    chain: WeightChain,
    plugins: PluginSet,
    device: Device,
    preview_s: float = PREVIEW_LIMIT_S,
) -> Sighting | None:
    """Look for the weights of one model; None where a load would have to fetch them or could not use them.

    Its family's preview may take `preview_s` seconds.
    """
    if model.config.weightless:
        return Sighting()
    found = find_weights(model.config, chain)
    if found is None:
        return None
    tier, folder = found
    try:
        card = read_card(folder)
    except ModelLoadError:
        return Sighting(tier, folder)  # a load will say what is wrong with them
    usable = any(name.endswith(".safetensors") for name in card.files) or not any(map(is_pickled, card.files))
    return Sighting(tier, folder, _preview(model, card, plugins, device, preview_s)) if usable else None


def _preview(
    model: ResolvedModel, card: ModelCard, plugins: PluginSet, device: Device, limit_s: float
) -> ModelFacts | None:
    try:
        family = choose_family(plugins, model, card, device).family
    except ModelLoadError:
        return None
    if family.preview is None:
        return None
    module, _, name = family.preview.partition(":")
    error: BaseException | None = None
    try:
        facts = plugins.calls.within(
            f"preview-{family.id}",
            limit_s,
            lambda: getattr(importlib.import_module(module), name)(card, model.config),
        )
        if facts is None or isinstance(facts, ModelFacts):
            return facts
        problem = f"returned a {type(facts).__name__} from `preview`, neither None nor a ModelFacts"
    except ModelLoadError:
        return None
    except HungError as hung:
        problem = f"{hung} from `preview`"
    except (Exception, SystemExit) as raised:
        problem, error = f"failed in `preview` ({type(raised).__name__})", raised
    plugins.faulty("sie_model_families", family.id, problem, error)
    return None
