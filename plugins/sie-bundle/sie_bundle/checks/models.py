"""Models of a bundle: known, claimed by one of its plugins, pinned."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sie_bundle.bundles.names import EVERY_MODEL
from sie_bundle.bundles.placement import Placement
from sie_bundle.bundles.reading import Bundle, BundleFile
from sie_bundle.bundles.schema import ModelEntry
from sie_bundle.checks.findings import Finding
from sie_core.cache import ask_commit, cache_folder, is_commit
from sie_core.cache.disk import hub_layout
from sie_core.catalog import Catalog, is_class_path
from sie_core.contracts import InferenceError, ModelLoadError, ResolvedModel, WeightRequest
from sie_core.plugins import PluginSet
from sie_core.settings import Settings

MOST_NAMED = 3


def check_models(
    file: BundleFile, catalog: Catalog, plugins: PluginSet, settings: Settings, *, ask_hub: bool
) -> Iterator[Finding]:
    """Check the models that a bundle names.

    Args:
        file: The bundle; its plugins are all installed here.
        catalog: The models that its plugins and the operator's folder have configs of.
        plugins: What its plugins register.
        settings: Where weights lie on this machine.
        ask_hub: Whether the Hub is asked for pins that are not on this machine.
    """
    named = tuple(report.distribution for report in plugins.reports if report.state == "active")
    placement = Placement([Bundle(file.whole.name, plugins=named)], plugins)
    unread, unpinned = [], []
    for index, entry in enumerate(file.whole.models):
        if entry.id == EVERY_MODEL:
            continue
        where = file.at("models", index)
        try:
            model = catalog.resolve(entry.id)
        except InferenceError as error:
            told = error.message.replace(" GET /v1/models lists those that are.", "")
            yield Finding(where, f"{told} Correct the id, or put its config into SIE_MODELS_DIR or a plugin's folder")
            continue
        if not placement.bundles_of(model):
            if _is_unread(model):
                unread.append(entry.id)
            else:
                yield Finding(where, _nobody(model, plugins))
        yield from _pin(entry, model, where, settings, ask_hub=ask_hub)
        if not (entry.revision or is_commit(model.config.hf_revision)) and not entry.bake:
            unpinned.append(entry.id)
    if unread:
        yield Finding(
            file.at("models"),
            f"{_some(unread)}: claimed by a plugin when the weights are read, as their configs say nothing of them",
            note=True,
        )
    if unpinned:
        yield Finding(
            file.at("models"),
            f"{_some(unpinned)}: unpinned, so other weights may be served tomorrow; `sie models pin` finds the commit",
            note=True,
        )


def _is_unread(model: ResolvedModel) -> bool:
    """Whether nothing says yet which family serves a model."""
    wanted = model.profile.adapter_path
    return (wanted is None or is_class_path(wanted)) and model.config.expected is None


def _nobody(model: ResolvedModel, plugins: PluginSet) -> str:
    families = ", ".join(sorted(plugins.families)) or "none"
    wanted, card = model.profile.adapter_path, model.config.expected
    if wanted is not None and not is_class_path(wanted):
        why = f"{model.id} names the family {wanted!r}, and no plugin of the bundle registers it"
    else:
        why = f"no plugin of the bundle claims {model.id} (model type {card.model_type if card else None})"
    return f"{why}; their families: {families}. Add the plugin that does, or leave the model out"


def _pin(
    entry: ModelEntry, model: ResolvedModel, where: str, settings: Settings, *, ask_hub: bool
) -> Iterator[Finding]:
    config = model.config
    if entry.bake and config.weightless:
        yield Finding(where, f"{entry.id} has no weights of its own to bake: leave `bake` out")
        return
    pinned = config.hf_revision if is_commit(config.hf_revision) else None
    if entry.bake and not (entry.revision or pinned):
        yield Finding(
            where, f"{entry.id} is baked and unpinned, so its weights cannot be verified: give it a `revision`"
        )
    if entry.revision and pinned and entry.revision != pinned:
        yield Finding(
            where, f"{entry.id}: the bundle pins {entry.revision}, and {config.source} pins {pinned}: make them one"
        )
    elif entry.revision:
        yield from _real(entry, entry.revision, config.hf_id or config.id, where, settings, ask_hub=ask_hub)


def _real(
    entry: ModelEntry, revision: str, repo: str, where: str, settings: Settings, *, ask_hub: bool
) -> Iterator[Finding]:
    if _is_here(repo, revision, cache_folder(settings)):
        return
    if not ask_hub:
        yield Finding(
            where, f"{entry.id}: whether {revision} is a commit of {repo} was not checked; --ask-hub does", note=True
        )
        return
    try:
        ask_commit(WeightRequest(repo, revision))
    except ModelLoadError as error:
        unknown = error.failure == "NOT_FOUND"
        told = "is no commit of" if unknown else "could not be looked for in"
        remedy = "correct the pin; `sie models pin` finds one" if unknown else str(error)
        yield Finding(where, f"{entry.id}: {revision} {told} {repo}: {remedy}", note=not unknown)


def _is_here(repo: str, revision: str, cache: Path) -> bool:
    return hub_layout.snapshot(cache, repo, revision) is not None


def _some(names: list[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"{', '.join(names[:MOST_NAMED])}{more}"
