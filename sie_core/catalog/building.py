"""Builds the catalog: folders that plugins ship, `SIE_MODELS_DIR` on top, then weights that no config names.

With a config service its export takes the place of all of these.

A broken config is listed as a problem and the rest is served; a setting that names a missing model stops the start.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from sie_core.cache import cache_folder
from sie_core.cache.hub.tier import is_offline
from sie_core.catalog.cards import holds_model, read_card
from sie_core.catalog.configs.ids import ID_RULE, is_model_id
from sie_core.catalog.configs.reading import ConfigError
from sie_core.catalog.configs.snapshot import Catalog, Problem, listed_id, make_catalog
from sie_core.catalog.sources.folder import ConfigFile, ModelsFolder
from sie_core.catalog.sources.from_weights import cached_models, packaged_models, undescribed, weights_config
from sie_core.catalog.sources.hub_models import is_hub_id
from sie_core.catalog.sources.local_folder import LocalFolder
from sie_core.catalog.sources.store_folder import StoreFolder
from sie_core.contracts import ModelConfig, ModelLoadError, ResolvedModel
from sie_core.plugins import PluginSet
from sie_core.plugins.object_stores import open_store
from sie_core.settings import Settings, SettingsError

log = logging.getLogger(__name__)


class Export(Protocol):
    """The configs of a config service at one epoch."""

    @property
    def epoch(self) -> int:
        """The epoch."""
        ...

    def files(self, known: Mapping[str, ModelConfig]) -> Sequence[ConfigFile]:
        """List the configs by their ids; `read` of one raises `ConfigError` if a field is wrong.

        Args:
            known: Configs of an earlier export by id; unchanged ones are not checked again.
        """
        ...


def open_folder(settings: Settings, plugins: PluginSet) -> ModelsFolder:
    """Open the folder `SIE_MODELS_DIR` names.

    Raises:
        PluginError: No plugin serves the scheme of its URL, or the store cannot be used.
    """
    if isinstance(settings.models_dir, Path):
        return LocalFolder(settings.models_dir, needed="models_dir" in settings.model_fields_set)
    store = open_store("SIE_MODELS_DIR", settings.models_dir, plugins.object_stores)
    return StoreFolder(store, settings.models_poll_s)


def require_one_source(settings: Settings) -> None:
    """Refuse a models folder in a process whose configs come from a config service.

    Raises:
        SettingsError: `SIE_MODELS_DIR` is set.
    """
    if "models_dir" in settings.model_fields_set:
        raise SettingsError(
            f"SIE_MODELS_DIR={settings.models_dir} beside SIE_CONFIG_SERVICE_URL: a gateway or worker with a config "
            "service takes its configs from there alone. Unset one of the two; set SIE_MODELS_DIR for the config "
            "service itself, whose export holds that folder."
        )


def build_catalog(
    settings: Settings,
    plugins: PluginSet,
    *,
    folder: ModelsFolder | None = None,
    export: Export | None = None,
    before: Catalog | None = None,
    hub: bool = False,
) -> Catalog:
    """Build the snapshot of every model these settings and plugins serve; problems are logged and listed in it.

    With an export, nothing else is a source: shipped configs, the models folder and weights found on this machine are
    ignored, and a setting may name a model that is added later.

    Args:
        settings: The settings in force.
        plugins: The installed plugins.
        folder: The operator's folder of configs; None opens the one `SIE_MODELS_DIR` names.
        export: The config service's configs; None without a config service.
        before: The previous snapshot. Its config is kept if a file cannot be read any more.
        hub: Whether `SIE_PRELOAD_MODELS` may name a model of the Hub that is looked up later.

    Raises:
        SettingsError: `SIE_MODELS_DIR` names no readable folder or is combined with an export; or a setting names a
            model that does not exist.
        PluginError: No plugin serves the scheme of its URL, or the store cannot be used.
    """
    problems: list[Problem] = []
    last = {} if before is None else {model.config.source: model.config for model in before.models()}
    stamp = None
    if export is not None:
        require_one_source(settings)
        configs = _read(export.files({} if before is None else before.configs), problems, last)
    else:
        folder = folder or open_folder(settings, plugins)
        stamp = folder.stamp()
        configs = _of_this_machine(settings, plugins, folder, problems, last)
    epoch = 1 if before is None else before.epoch + 1
    catalog = make_catalog(epoch, configs.values(), problems, absent=_absent(plugins))
    for problem in catalog.problems:
        log.warning("model config %s: %s", problem.source, problem.message)
    served = _filter(catalog, settings, later=export is not None, hub=hub)
    return replace(served, stamp=stamp, config_epoch=None if export is None else export.epoch)


def build_base(
    settings: Settings, plugins: PluginSet, *, folder: ModelsFolder | None = None, before: Catalog | None = None
) -> Catalog:
    """Build the snapshot that a config service starts from: the plugins' configs, and `SIE_MODELS_DIR` on top.

    Every machine of a cluster serves these, so models in this machine's caches are left out, and settings exclude
    nothing. The other arguments and the errors are as in `build_catalog`.
    """
    problems: list[Problem] = []
    last = {} if before is None else {config.source: config for config in before.configs.values()}
    folder = folder or open_folder(settings, plugins)
    stamp = folder.stamp()
    configs = {name: _with_card(config) for name, config in _shipped_and_own(plugins, folder, problems, last).items()}
    catalog = make_catalog(1 if before is None else before.epoch + 1, configs.values(), problems, _absent(plugins))
    for problem in catalog.problems:
        log.warning("model config %s: %s", problem.source, problem.message)
    return replace(catalog, stamp=stamp)


def _with_card(config: ModelConfig) -> ModelConfig:
    """Fill in `expected` from the weights' own files, if the config omits it and the weights are in a local folder."""
    if config.weights_path is None or config.expected is not None or config.weightless:
        return config
    try:
        return replace(config, expected=read_card(Path(config.weights_path)))
    except ModelLoadError:
        return config


def _shipped_and_own(
    plugins: PluginSet, folder: ModelsFolder, problems: list[Problem], last: Mapping[str, ModelConfig]
) -> dict[str, ModelConfig]:
    shipped = _read([file for each in plugins.model_folders for file in LocalFolder(each).files()], problems, last)
    configs = {**shipped, **_read(folder.files(), problems, last)}
    for config in folder.weights():
        _add_folder(configs, config, problems)
    named = {Path(path).resolve() for config in configs.values() for path in _folders_of(config)}
    for path, reason in folder.passed_over():
        if path.resolve() not in named:
            source = str(path).encode("utf-8", "backslashreplace").decode()  # a name may be no UTF-8
            problems.append(Problem(source, reason))
    for config in packaged_models(plugins.weight_packages):
        configs.setdefault(config.id, config)
    return configs


def _of_this_machine(
    settings: Settings,
    plugins: PluginSet,
    folder: ModelsFolder,
    problems: list[Problem],
    last: Mapping[str, ModelConfig],
) -> dict[str, ModelConfig]:
    configs = _shipped_and_own(plugins, folder, problems, last)
    for each in settings.weight_folders:
        named = _named_folder(each)
        _add_folder(configs, named, problems)
        if _resolved(configs.get(named.id, named)) != _resolved(named):
            raise SettingsError(f"SIE_WEIGHT_FOLDERS={each}: the id {named.id} is taken by {configs[named.id].source}.")
    for config in cached_models(cache_folder(settings), plugins.other_weights):
        configs.setdefault(config.id, config)
    return configs


def _absent(plugins: PluginSet) -> str:
    causes = plugins.problems()
    return f" Broken plugins, whose models are missing: {causes}." if causes else ""


def _read(
    files: Iterable[ConfigFile], problems: list[Problem], last: Mapping[str, ModelConfig]
) -> dict[str, ModelConfig]:
    configs: dict[str, ModelConfig] = {}
    for file in files:
        try:
            config = file.read()
        except ConfigError as error:
            kept = last.get(file.source)
            served = "" if kept is None else " What it said before is served on."
            message = str(error).replace(f"{file.source}: ", "") + served
            problems.append(Problem(file.source, message, error.model))
            if kept is None:
                continue
            config = kept
        if config.id in configs:
            other = configs[config.id].source
            problems.append(Problem(file.source, f"the id {config.id} is taken by {other}; that one is served"))
        else:
            configs[config.id] = config
    return configs


def _add_folder(configs: dict[str, ModelConfig], found: ModelConfig, problems: list[Problem]) -> None:
    """Serve a folder of weights under its name, or use its weights for the config of that name that has none.

    A folder that a config names as its `weights_path` belongs to that config. A folder reachable by two paths is served
    once.
    """
    known = configs.get(found.id)
    if known is not None and known.weights_path is None and not known.weightless:
        configs[found.id] = replace(known, weights_path=found.weights_path)
        return
    owner = known or next((config for config in configs.values() if _resolved(config) == _resolved(found)), None)
    if owner is None:
        configs[found.id] = found
    elif _resolved(owner) != _resolved(found):
        problems.append(Problem(str(found.weights_path), f"the id {owner.id} is taken by {owner.source}"))
    elif os.path.normpath(str(owner.weights_path)) != str(found.weights_path):
        problems.append(
            Problem(str(found.weights_path), f"it leads to the folder of weights that is served as {owner.id}, once")
        )


def _folders_of(config: ModelConfig) -> list[str]:
    """List the folders of weights that a config names: the model's own and those of its LoRA adapters."""
    return [path for path in (config.weights_path, *(lora.weights_path for lora in config.loras.values())) if path]


def _named_folder(named: str) -> ModelConfig:
    """Make the config of a folder that `SIE_WEIGHT_FOLDERS` names."""
    folder = Path(named).expanduser().absolute()
    if not holds_model(folder):
        problem = undescribed(folder) or "no folder of weights. Name one that holds a model's config.json"
        raise SettingsError(f"SIE_WEIGHT_FOLDERS={named}: {problem}.")
    if not is_model_id(folder.name):
        raise SettingsError(f"SIE_WEIGHT_FOLDERS={named}: its name cannot be a model's id: {ID_RULE}.")
    return weights_config(folder.name, weights_path=str(folder))


def _resolved(config: ModelConfig) -> Path | None:
    return None if config.weights_path is None else Path(config.weights_path).resolve()


def filter_of(settings: Settings) -> Callable[[ResolvedModel], bool]:
    """Return whether `SIE_MODEL_FILTER` keeps a model; a bare id keeps its profiles too."""
    names = {listed_id(name) for name in settings.model_filter}
    return lambda model: not names or model.id in names or model.config.id in names


def _filter(catalog: Catalog, settings: Settings, *, later: bool, hub: bool = False) -> Catalog:
    """Keep the models that `SIE_MODEL_FILTER` names.

    If `later`, unknown models in settings are logged, not refused: they may be added later.
    """
    filtered = catalog
    if settings.model_filter:
        serves = filter_of(settings)
        kept = {key: model for key, model in catalog.entries.items() if serves(model)}
        known = {*catalog.entries, *(model.config.id for model in kept.values())}
        _check_known(catalog, "SIE_MODEL_FILTER", settings.model_filter, known, later=later)
        filtered = replace(catalog, entries=MappingProxyType(kept))
    asked = [name for name in settings.preload_models if not (hub and _on_hub(catalog, name, settings))]
    _check_served(catalog, filtered, "SIE_PRELOAD_MODELS", asked, later=later)
    _check_served(catalog, filtered, "SIE_PINNED_MODELS", settings.pinned_models, later=later)
    return filtered


def _on_hub(catalog: Catalog, name: str, settings: Settings) -> bool:
    """Whether only the Hub may have a model, and it may be asked."""
    known = name in catalog.unserved or name in catalog.configs or catalog.fault(name)
    return not known and not settings.model_filter and is_hub_id(name) and not is_offline(settings)


def _check_served(catalog: Catalog, filtered: Catalog, setting: str, names: Iterable[str], *, later: bool) -> None:
    _check_known(catalog, setting, names, catalog.entries, later=later)
    for name in names:
        if listed_id(name) in catalog.entries and listed_id(name) not in filtered.entries:
            raise SettingsError(f"{setting}={name}: SIE_MODEL_FILTER leaves this model out. Add it there.")


def _check_known(catalog: Catalog, setting: str, names: Iterable[str], known: Collection[str], *, later: bool) -> None:
    for name in names:
        if listed_id(name) not in known:
            if later:
                log.info("%s=%s: the config service has no such model yet", setting, name)
                continue
            if name in catalog.unserved or catalog.fault(name):
                raise SettingsError(f"{setting}={name}: {catalog.not_found(name)}")
            unread = ", ".join(problem.source for problem in catalog.problems)
            broken = f" Not served because of a problem of its own: {unread}." if unread else ""
            raise SettingsError(
                f"{setting}={name}: no such model.{catalog.like(name)} `sie models --all` lists all; "
                "a folder of weights or, where the Hub may be asked, an id of it does as well."
                f"{broken}{catalog.absent}"
            )
