"""The registry: one immutable value with the place of each model of a catalog, and the hashes of what is served.

The config service builds it from its bundles and plugins, a gateway from an export.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sie_bundle.bundles.hashes import bundles_hash, config_hashes_hash, config_row, hash_rows
from sie_bundle.bundles.names import DEFAULT_PRIORITY
from sie_bundle.bundles.placement import BundleView
from sie_core.catalog import Catalog, listed_id, profiles_of, short
from sie_core.contracts import InferenceError, InvalidInput, ModelConfig, ResolvedModel
from sie_core.contracts.model.config import DEFAULT_POOL

DEFAULT_QUEUE_POOL = "_default"
"""The queue pool of the pool that is publicly named `default`."""

BundlesOf = Callable[[ResolvedModel], Sequence[str]]


@dataclass(frozen=True, slots=True)
class Route:
    """The place where a model is served."""

    model: ResolvedModel
    bundle: str
    """The bundle whose workers are asked."""
    compatible: tuple[str, ...]
    """Every bundle that serves it, by priority."""
    pool: str
    """The queue pool."""


@dataclass(frozen=True, slots=True)
class Registry:
    """The places of all models of a catalog."""

    catalog: Catalog
    bundles: Mapping[str, BundleView]
    """Keyed by name, in the order of their priority."""
    routes: Mapping[str, Route]
    """Keyed by a model's listed id; models that no bundle serves are missing."""
    config_hashes: Mapping[str, str]
    """Keyed by bundle."""
    pool_config_hashes: Mapping[str, Mapping[str, str]]
    """Keyed by bundle and the public name of a pool."""
    bundles_hash: str
    config_hashes_hash: str
    rows: Mapping[str, Mapping[str, Mapping[str, str]]]
    """Inputs of the hashes, by bundle, public name of a pool and model."""
    _any_case: Mapping[str, str]
    """Listed ids by themselves in lower case."""
    epochs: Mapping[str, int] = field(default_factory=dict)
    """The config service's epoch of the last change of each config, by id; unchanged configs are missing."""

    def resolve(self, name: str, bundle: str | None = None) -> Route:
        """Find where `id`, `id:profile` or `bundle:/id[:profile]` is served; upper and lower case count alike.

        Args:
            name: The model.
            bundle: The requested bundle; None for the one with the lowest priority.

        Raises:
            InvalidInput: `name` cannot be a model, or names another bundle than `bundle`.
            InferenceError: `MODEL_NOT_FOUND`: there is no such model, or no bundle serves it. `BUNDLE_CONFLICT`: the
                requested bundle does not serve it; `compatible_bundles` of the details lists those that do.
        """
        route = self.routes.get(name)
        if route is None:
            asked, model = _parsed(name)
            if asked is not None and bundle not in (None, asked):
                raise InvalidInput(
                    f"bundle {short(bundle)} and the model {short(name)} name two bundles.", param="bundle"
                )
            bundle, route = asked or bundle, self._found(model)
        if bundle is None or bundle == route.bundle:
            return route
        if bundle not in route.compatible:
            raise InferenceError(
                "BUNDLE_CONFLICT",
                f"bundle {short(bundle)} does not serve {route.model.id}; {', '.join(route.compatible)} do.",
                param="bundle",
                details={"compatible_bundles": list(route.compatible)},
            )
        return replace(route, bundle=bundle)

    def _found(self, model: str) -> Route:
        listed = listed_id(model)
        listed = listed if listed in self.catalog.entries else self._any_case.get(listed.lower(), listed)
        route = self.routes.get(listed)
        if route is not None:
            return route
        unrouted = self.catalog.resolve(listed)
        raise InferenceError(
            "MODEL_NOT_FOUND",
            f"{unrouted.id} has a config, and none of the bundles {', '.join(self.bundles) or '(none)'} serves it.",
            param="model",
        )


def make_registry(
    catalog: Catalog, bundles: Sequence[BundleView], bundles_of: BundlesOf, epochs: Mapping[str, int] | None = None
) -> Registry:
    """Make the registry of a catalog.

    Args:
        catalog: The models. Those that `SIE_MODEL_FILTER` excludes have no route, but count for the hashes, on which
            every machine of a cluster has to agree.
        bundles: Every bundle.
        bundles_of: Names the bundles that serve a model; called once for each.
        epochs: Epoch of the last change of each config, by id.
    """
    ordered = sorted(bundles, key=lambda each: (each.priority, each.name))
    rows: dict[str, dict[str, dict[str, str]]] = {bundle.name: defaultdict(dict) for bundle in ordered}
    routes: dict[str, Route] = {}
    for config in catalog.configs.values():
        row = config_row(config)
        for model in profiles_of(config):
            serving = bundles_of(model)
            compatible = tuple(bundle.name for bundle in ordered if bundle.name in serving)
            for name in compatible:
                rows[name][config.pool][config.id] = row
            if compatible and model.id in catalog.entries:
                routes[model.id] = Route(catalog.entries[model.id], compatible[0], compatible, queue_pool(config))
    hashes = {
        name: hash_rows({id_: row for rows_of_pool in pools.values() for id_, row in rows_of_pool.items()})
        for name, pools in rows.items()
    }
    return Registry(
        catalog,
        {bundle.name: bundle for bundle in ordered},
        routes,
        hashes,
        {name: {pool: hash_rows(pools[pool]) for pool in sorted(pools)} for name, pools in rows.items()},
        bundles_hash(ordered),
        config_hashes_hash(hashes),
        {name: dict(pools) for name, pools in rows.items()},
        any_case(catalog),
        epochs or {},
    )


def registry_of_one_bundle(catalog: Catalog, bundle: str, pool: str) -> Registry:
    """Make the registry of a catalog without a config service: one bundle serves every model, from one queue pool.

    There are no hashes: no other machine holds these configs.
    """
    return Registry(
        catalog,
        {bundle: BundleView(bundle, DEFAULT_PRIORITY)},
        {name: Route(model, bundle, (bundle,), pool) for name, model in catalog.entries.items()},
        {},
        {},
        "",
        "",
        {},
        any_case(catalog),
    )


def queue_pool(config: ModelConfig) -> str:
    """Name the queue pool whose workers serve a config."""
    return DEFAULT_QUEUE_POOL if config.pool == DEFAULT_POOL else config.pool


def any_case(catalog: Catalog) -> Mapping[str, str]:
    """Map the ids of a catalog in lower case to their listed form; the first of several wins."""
    names = reversed(list(catalog.entries))
    # `lower` makes another string of every name; if one is in lower case already, thousands are spared.
    return {name if name.islower() else name.lower(): name for name in names}


def _parsed(name: str) -> tuple[str | None, str]:
    """Split `bundle:/id` into the bundle and the id; a name without `:/` names no bundle."""
    bundle, separator, model = name.partition(":/")
    if not separator:
        return None, name
    if not bundle or not model:
        raise InvalidInput(f"model {short(name)}: a bundle and a model are written `bundle:/id`.", param="model")
    return bundle, model
