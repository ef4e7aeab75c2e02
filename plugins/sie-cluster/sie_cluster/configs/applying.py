"""What a delta or an export makes of the registry in force: pure, so that both can run on a thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sie_bundle.bundles.changing import changed_registry
from sie_bundle.bundles.hashes import config_hashes_hash
from sie_bundle.bundles.registry import Registry, make_registry

from sie_cluster.configs.client import Epoch
from sie_cluster.configs.delta import Delta, RefusedDelta
from sie_cluster.messages.export import SOURCE, read_export
from sie_cluster.settings import ClusterSettings
from sie_core.catalog import ConfigError, build_catalog
from sie_core.catalog.configs.reading import config_of
from sie_core.contracts import ModelConfig, ResolvedModel
from sie_core.plugins import PluginSet
from sie_core.serving.garbage import uncollected


@dataclass(frozen=True, slots=True)
class Held:
    """The configs in force, and what the config service says of them."""

    registry: Registry
    sources: Mapping[str, str]
    """By model, `api` or `filesystem`."""
    told: Epoch

    @property
    def agrees(self) -> bool:
        """Whether the configs have the hashes that the service states."""
        return self.registry.config_hashes_hash == self.told.bundle_config_hashes_hash


@uncollected()
def apply_export(raw: bytes, settings: ClusterSettings, plugins: PluginSet, before: Held | None) -> Held:
    """Read an export; configs that are unchanged are those of `before`.

    Raises:
        ConfigError: It cannot be read.
        SettingsError: A setting stands against it.
    """
    export = read_export(raw)
    catalog = build_catalog(settings, plugins, export=export, before=before.registry.catalog if before else None)
    epochs = {model.id: model.epoch for model in export.models if model.epoch}
    registry = make_registry(catalog, export.bundles, export.placement(), epochs)
    told = Epoch(
        epoch=export.epoch,
        bundles_hash=registry.bundles_hash,
        bundle_config_hashes_hash=config_hashes_hash(export.bundle_config_hashes),
    )
    return Held(registry, {model.id: model.source for model in export.models}, told)


def apply_delta(held: Held, delta: Delta, serves: Callable[[ResolvedModel], bool]) -> Held:
    """Make a change of one model, and see whether that gives what the delta says.

    Raises:
        RefusedDelta: `old_epoch`, `gap`, `bundles`, `without_config`, `config`, `wrong_hash`.
    """
    epoch, model_id = held.told.epoch, delta.model_id
    if delta.epoch <= epoch:
        raise RefusedDelta("old_epoch", f"its epoch {delta.epoch} is not above {epoch}")
    if delta.previous_epoch != epoch or delta.epoch != epoch + 1:
        raise RefusedDelta("gap", f"it leads from epoch {delta.previous_epoch} to {delta.epoch}, and {epoch} is known")
    if delta.bundles_hash != held.registry.bundles_hash:
        raise RefusedDelta("bundles", "the bundles have changed")
    config = None if delta.deleted else _config(delta)
    registry = changed_registry(
        held.registry, model_id, config, delta.bundles_by_profile, epoch=delta.epoch, serves=serves
    )
    if registry is None:
        raise RefusedDelta("without_config", f"what {model_id[:100]} becomes can be told by the export alone")
    stated = registry.config_hashes.get(delta.bundle_id, "")
    if dict(registry.config_hashes) != delta.bundle_config_hashes or stated != delta.bundle_config_hash:
        raise RefusedDelta("wrong_hash", f"with {model_id[:100]} as it says, the configs have other hashes")
    sources = {id_: source for id_, source in held.sources.items() if id_ != model_id}
    if config is not None:
        sources[model_id] = delta.source
    told = Epoch(
        epoch=delta.epoch,
        bundles_hash=delta.bundles_hash,
        bundle_config_hashes_hash=registry.config_hashes_hash,
    )
    return Held(registry, sources, told)


def _config(delta: Delta) -> ModelConfig:
    """Read the config of a delta.

    Raises:
        RefusedDelta: `without_config`, `config`.
    """
    if not delta.model_config_:
        raise RefusedDelta("without_config", "it leaves the config to the export")
    try:
        config = config_of(delta.model_config_.encode(), source=f"{SOURCE}: {delta.model_id}", folder=None)
    except ConfigError as error:
        raise RefusedDelta("config", str(error)[:500]) from None
    if config.id != delta.model_id:
        raise RefusedDelta("config", f"the config of {delta.model_id[:100]!r} is one of {config.id!r}")
    return config
