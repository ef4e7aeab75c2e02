"""Changes one model of a registry and shares the rest, so that the cost is that of copying maps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from sie_bundle.bundles.hashes import config_hashes_hash, config_row, hash_rows
from sie_bundle.bundles.registry import Registry, Route, any_case, queue_pool
from sie_core.catalog import Catalog, profiles_of
from sie_core.contracts import ModelConfig, ResolvedModel

BundlesByProfile = Mapping[str, Sequence[str]]


def changed_registry(
    registry: Registry,
    model_id: str,
    config: ModelConfig | None,
    bundles: BundlesByProfile,
    *,
    epoch: int,
    serves: Callable[[ResolvedModel], bool] = lambda model: True,
) -> Registry | None:
    """Return the registry with one model added, replaced or removed; None if the registry must be rebuilt.

    A rebuild is needed if an id is listed twice, or a model states that it cannot be served.

    Args:
        registry: The current registry.
        model_id: The model's id.
        config: The new config; None removes the model.
        bundles: The bundles that serve each of its profiles.
        epoch: The config service's new epoch.
        serves: Whether a model is served; the others count only for the hashes.
    """
    catalog = _changed_catalog(registry.catalog, model_id, config, epoch, serves)
    if catalog is None:
        return None
    before = registry.catalog.configs.get(model_id)
    gone = [] if before is None else [each.id for each in profiles_of(before)]
    routes = {name: route for name, route in registry.routes.items() if name not in gone}
    serving: dict[str, None] = {}
    for model in [] if config is None else profiles_of(config):
        compatible = tuple(name for name in registry.bundles if name in bundles.get(model.profile.name, ()))
        serving.update(dict.fromkeys(compatible))
        if compatible and model.id in catalog.entries:
            routes[model.id] = Route(catalog.entries[model.id], compatible[0], compatible, queue_pool(model.config))
    rows = {
        name: _changed_rows(of_bundle, model_id, config if name in serving else None)
        for name, of_bundle in registry.rows.items()
    }
    changed = [name for name in rows if rows[name] is not registry.rows[name]]
    hashes = {**registry.config_hashes, **{name: _hash(rows[name]) for name in changed}}
    of_pools = {name: {pool: hash_rows(of_pool) for pool, of_pool in sorted(rows[name].items())} for name in changed}
    return replace(
        registry,
        catalog=catalog,
        routes=routes,
        rows=rows,
        config_hashes=hashes,
        pool_config_hashes={**registry.pool_config_hashes, **of_pools},
        config_hashes_hash=config_hashes_hash(hashes),
        epochs=_changed_epochs(registry.epochs, model_id, epoch if config is not None else None),
        _any_case=any_case(catalog),
    )


def _changed_catalog(
    catalog: Catalog,
    model_id: str,
    config: ModelConfig | None,
    epoch: int,
    serves: Callable[[ResolvedModel], bool],
) -> Catalog | None:
    before = catalog.configs.get(model_id)
    if (config is not None and config.unserved) or model_id in catalog.unserved or _concerned(catalog, model_id):
        return None
    kept = {name: model for name, model in catalog.entries.items() if model.config is not before}
    added = {model.id: model for model in ([] if config is None else profiles_of(config)) if serves(model)}
    if added.keys() & kept.keys():
        return None
    entries = MappingProxyType(dict(sorted({**kept, **added}.items())))
    configs = {id_: each for id_, each in catalog.configs.items() if id_ != model_id}
    if config is not None:
        configs[model_id] = config
    return replace(
        catalog, epoch=catalog.epoch + 1, entries=entries, configs=MappingProxyType(configs), config_epoch=epoch
    )


def _concerned(catalog: Catalog, model_id: str) -> bool:
    """Whether a change of a model may end a problem: its config was unusable, or an id is listed twice."""
    if not catalog.problems:
        return False
    profiles = sum(len(config.profiles) for config in catalog.configs.values())
    return profiles != len(catalog.entries) or any(each.source.endswith(f": {model_id}") for each in catalog.problems)


def _changed_epochs(epochs: Mapping[str, int], model_id: str, epoch: int | None) -> Mapping[str, int]:
    kept = {id_: each for id_, each in epochs.items() if id_ != model_id}
    return kept if epoch is None else {**kept, model_id: epoch}


def _changed_rows(
    rows: Mapping[str, Mapping[str, str]], model_id: str, config: ModelConfig | None
) -> Mapping[str, Mapping[str, str]]:
    """Return the rows of a bundle with one model's replaced; the same object if nothing changes."""
    row = None if config is None else config_row(config)
    before = {pool: of_pool[model_id] for pool, of_pool in rows.items() if model_id in of_pool}
    if before == ({} if config is None else {config.pool: row}):
        return rows
    changed = {pool: dict(of_pool) for pool, of_pool in rows.items()}
    for pool in before:
        del changed[pool][model_id]
        if not changed[pool]:
            del changed[pool]
    if config is not None and row is not None:
        changed.setdefault(config.pool, {})[model_id] = row
    return changed


def _hash(rows: Mapping[str, Mapping[str, str]]) -> str:
    return hash_rows({id_: row for of_pool in rows.values() for id_, row in of_pool.items()})
