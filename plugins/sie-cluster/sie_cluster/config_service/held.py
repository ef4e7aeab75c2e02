"""What the service holds at one moment: the base, what was written on top, and the registry of both."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Literal

from sie_bundle.bundles.changing import changed_registry
from sie_bundle.bundles.placement import Placement
from sie_bundle.bundles.registry import Registry, make_registry

from sie_cluster.config_service.store.records import StoredModel, fits_json
from sie_cluster.config_service.store.state import State
from sie_cluster.messages.export import SOURCE, exported_content
from sie_core.catalog.configs.reading import ConfigError, parse_config
from sie_core.catalog.configs.snapshot import Catalog, Problem, make_catalog, profiles_of
from sie_core.contracts import ModelConfig

log = logging.getLogger(__name__)

Source = Literal["api", "filesystem"]


@dataclass(frozen=True, slots=True)
class Held:
    """The base and what was written; the registry serves both."""

    base: Catalog
    state: State
    registry: Registry

    @property
    def epoch(self) -> int:
        """The number of the last record of the log."""
        return self.state.epoch

    def content(self, model_id: str) -> Mapping[str, Any] | None:
        """Return what the config in force says; None where there is none."""
        written = self.state.models.get(model_id)
        if written is not None:
            return written.content
        config = self.base.configs.get(model_id)
        return None if config is None else exported_content(config)

    def after(self, state: State, model_id: str, placement: Placement) -> Held:
        """Return what one more write makes of this.

        Args:
            state: Afterwards.
            model_id: The model that was written.
            placement: Says which bundles serve it.
        """
        model = state.models.get(model_id)
        try:
            config = self.base.configs.get(model_id) if model is None else config_of_model(model_id, model)
        except ConfigError:
            return _assemble(self.base, state, placement, self.registry.catalog)
        bundles = (
            {} if config is None else {each.profile.name: placement.bundles_of(each) for each in profiles_of(config)}
        )
        registry = changed_registry(self.registry, model_id, config, bundles, epoch=state.epoch)
        if registry is not None:
            return replace(self, state=state, registry=registry)
        return _assemble(self.base, state, placement, self.registry.catalog)

    def source(self, model_id: str) -> Source:
        """Say where a config comes from."""
        return "api" if model_id in self.state.models else "filesystem"

    def sources(self) -> Mapping[str, Source]:
        """Say of each config in force where it comes from."""
        return {id_: self.source(id_) for id_ in self.registry.catalog.configs}


def config_of_model(model_id: str, model: StoredModel) -> ModelConfig:
    """Turn a config that was written into a value.

    Raises:
        ConfigError: A field is wrong.
    """
    config = parse_config(model.content, source=f"{SOURCE}: {model_id}", folder=None, text=model.text)
    if config.id != model_id:
        raise ConfigError(f"{SOURCE}: {model_id}: sie_id: {config.id!r} is another model's")
    return config


def hold(base: Catalog, state: State, placement: Placement, before: Held | None = None) -> Held:
    """Put everything together. A config that cannot be used any more is kept, logged, and not served.

    Args:
        base: What is served where nothing was written.
        state: What was written.
        placement: Says which bundles serve a model.
        before: What was held; configs that were written before then are not checked again.
    """
    problems, configs = list(base.problems), dict(base.configs)
    for config in base.configs.values():
        if not fits_json(config.content):
            told = "not served: it says what JSON cannot, such as a number beyond 64 bits"
            problems.append(Problem(config.source, told))
            del configs[config.id]
    base = replace(base, problems=tuple(problems), configs=MappingProxyType(configs))
    return _assemble(base, state, placement, None if before is None else before.registry.catalog)


def _assemble(base: Catalog, state: State, placement: Placement, before: Catalog | None) -> Held:
    configs, problems = dict(base.configs), list(base.problems)
    known = {} if before is None else before.configs
    for model_id, model in state.models.items():
        config = known.get(model_id)
        if config is not None and config.content is model.content:
            configs[model_id] = config
            continue
        try:
            configs[model_id] = config_of_model(model_id, model)
        except ConfigError as error:
            configs.pop(model_id, None)
            problems.append(Problem(f"{SOURCE}: {model_id}", str(error)))
            log.error("a model that was written cannot be served: %s", error)
    ordered = (configs[model_id] for model_id in sorted(configs))
    catalog = make_catalog(base.epoch if before is None else before.epoch + 1, ordered, problems, base.absent)
    catalog = replace(
        catalog,
        problems=tuple(dict.fromkeys(catalog.problems)),
        unserved={id_: why for id_, why in base.unserved.items() if id_ not in catalog.configs},
        stamp=base.stamp,
        config_epoch=state.epoch,
    )
    epochs = {id_: epoch for id_, epoch in state.epochs.items() if id_ in catalog.configs}
    return Held(base, state, make_registry(catalog, placement.views(), placement.bundles_of, epochs))
