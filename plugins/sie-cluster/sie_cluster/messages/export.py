"""An export of the config service: every config it holds, as one value, in place of folders and weights found."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from sie_bundle.bundles.placement import BundleView
from sie_bundle.bundles.registry import Registry

from sie_core.catalog.configs.reading import ConfigError, describe_problems, parse_config
from sie_core.catalog.configs.snapshot import profiles_of
from sie_core.catalog.sources.folder import ConfigFile
from sie_core.contracts import ModelConfig, ResolvedModel

SOURCE = "config service"


@dataclass(frozen=True, slots=True)
class ExportedModel:
    """One config of an export."""

    id: str
    content: Mapping[str, Any]
    """Content of its YAML."""
    text: str
    """Its YAML."""
    bundles: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The bundles that serve each profile."""
    source: str = "api"
    """`api`, or `filesystem` for one that came with the service's image."""
    epoch: int = 0
    """The service's epoch of its last change; 0 if it was never changed."""


@dataclass(frozen=True, slots=True)
class Export:
    """The configs of a config service at one epoch."""

    epoch: int
    models: tuple[ExportedModel, ...] = ()
    """Keyed by id."""
    bundles: tuple[BundleView, ...] = ()
    bundle_config_hashes: Mapping[str, str] = field(default_factory=dict)

    def files(self, known: Mapping[str, ModelConfig]) -> Sequence[ConfigFile]:
        """List the configs by their ids; `read` of one raises `ConfigError` if a field is wrong.

        Args:
            known: Configs of an earlier export by id; unchanged ones are not checked again.
        """
        return [ConfigFile(f"{SOURCE}: {each.id}", partial(_read, each, known.get(each.id))) for each in self.models]

    def placement(self) -> Callable[[ResolvedModel], Sequence[str]]:
        """Return a function that names the bundles which the service says serve a model."""
        bundles = {each.id: each.bundles for each in self.models}
        return lambda model: bundles.get(model.config.id, {}).get(model.profile.name, ())


def read_export(raw: bytes) -> Export:
    """Check the answer of `GET /v1/configs/export`, and turn it into an `Export`.

    Unknown fields are ignored: a newer service may send more.

    Raises:
        ConfigError: It is no JSON, or a field is missing or wrong; every wrong one is named, a line each.
    """
    try:
        read = _Snapshot.model_validate(orjson.loads(raw))
    except orjson.JSONDecodeError as error:
        raise ConfigError(f"{SOURCE}: export: it is no JSON: {error.msg[:100]}") from None
    except ValidationError as error:
        raise _wrong(describe_problems(error)) from None
    models = _models(read.models)
    bundles = (
        BundleView(each.bundle_id, each.priority, tuple(read.bundle_adapters.get(each.bundle_id, ())), each.engine)
        for each in read.bundles
    )
    return Export(
        read.epoch, tuple(sorted(models, key=lambda each: each.id)), tuple(bundles), read.bundle_config_hashes
    )


def _models(rows: list[Any]) -> list[ExportedModel]:
    """Check the models of an export and empty the list, so that each parsed model replaces its source.

    Thousands of models parsed, checked and built at the same time would leave a process at several times its final
    memory.
    """
    models: list[ExportedModel] = []
    problems: list[str] = []
    shared: dict[bytes, Any] = {}
    rows.reverse()
    for number in range(len(rows)):
        try:
            read = _Model.model_validate(rows.pop())
        except ValidationError as error:
            problems += (f"models.{number}.{line}" for line in describe_problems(error))
            continue
        content = {name: _shared(value, shared) for name, value in read.model_config_.items()}
        bundles = _shared(read.bundles_by_profile, shared)
        models.append(ExportedModel(read.model_id, content, read.raw_yaml, bundles, read.source, read.epoch))
    if problems:
        raise _wrong(problems)
    return models


def _wrong(problems: Sequence[str]) -> ConfigError:
    return ConfigError("\n".join(f"{SOURCE}: export: {line}" for line in problems))


def _shared(value: Any, known: dict[bytes, Any]) -> Any:
    """Share one object for equal values of all models; for thousands of models that saves a quarter of the memory."""
    if not isinstance(value, dict | list):
        return value
    try:
        return known.setdefault(orjson.dumps(value), value)
    except orjson.JSONEncodeError:  # a number of more than 64 bits: the config's own check refuses it
        return value


def write_export(registry: Registry, sources: Mapping[str, str], generated_at: str) -> dict[str, Any]:
    """Write the answer of `GET /v1/configs/export` as JSON.

    `bundles`, and `bundles_by_profile` and `epoch` of a model, extend the published fields for followers of this
    service.

    Args:
        registry: The service's registry.
        sources: By model, `api` or `filesystem`.
        generated_at: The time, in ISO 8601.
    """
    return {
        "snapshot_version": 1,
        "epoch": registry.catalog.config_epoch or 0,
        "generated_at": generated_at,
        "bundles": [
            {"bundle_id": each.name, "priority": each.priority, "engine": each.engine}
            for each in registry.bundles.values()
        ],
        "bundle_config_hashes": dict(registry.config_hashes),
        "bundle_pool_config_hashes": {name: dict(hashes) for name, hashes in registry.pool_config_hashes.items()},
        "bundle_adapters": {each.name: list(each.adapters) for each in registry.bundles.values()},
        "models": [
            _exported(config, registry, sources[config.id]) for _, config in sorted(registry.catalog.configs.items())
        ],
    }


def bundles_by_profile(config: ModelConfig, registry: Registry) -> dict[str, list[str]]:
    """Name the bundles that serve each profile of a config; unserved profiles are left out."""
    routes = {model.profile.name: registry.routes.get(model.id) for model in profiles_of(config)}
    return {name: list(route.compatible) for name, route in routes.items() if route is not None}


def _exported(config: ModelConfig, registry: Registry, source: str) -> dict[str, Any]:
    by_profile = bundles_by_profile(config, registry)
    affected = {bundle for bundles in by_profile.values() for bundle in bundles}
    return {
        "model_id": config.id,
        "model_config": exported_content(config),
        "raw_yaml": config.text,
        "affected_bundles": [name for name in registry.bundles if name in affected],
        "bundles_by_profile": by_profile,
        "pool": config.pool,
        "source": source,
        "epoch": registry.epochs.get(config.id, 0),
    }


def exported_content(config: ModelConfig) -> Mapping[str, Any]:
    """Return a config's content with absolute paths of weights, which are relative to its own folder.

    Other machines do not have that folder; they need the weights under the same path.
    """
    content = dict(config.content)
    if config.weights_path is not None:
        content["weights_path"] = config.weights_path
    if content.get("loras"):
        content["loras"] = {
            name: {**written, "weights_path": config.loras[name].weights_path} if "weights_path" in written else written
            for name, written in content["loras"].items()
        }
    return content


class _Bundle(BaseModel):
    model_config = ConfigDict(strict=True)

    bundle_id: str
    priority: int
    engine: str


class _Model(BaseModel):
    model_config = ConfigDict(strict=True, protected_namespaces=())

    model_id: str
    model_config_: Annotated[dict[str, Any], Field(alias="model_config")]
    raw_yaml: str = ""
    source: str = "api"
    bundles_by_profile: dict[str, list[str]]
    epoch: Annotated[int, Field(ge=0)] = 0


class _Snapshot(BaseModel):
    model_config = ConfigDict(strict=True)

    snapshot_version: Literal[1]
    epoch: Annotated[int, Field(ge=0)]
    bundles: list[_Bundle]
    bundle_adapters: dict[str, list[str]]
    bundle_config_hashes: dict[str, str]
    models: list[Any]


def _read(model: ExportedModel, known: ModelConfig | None) -> ModelConfig:
    source = f"{SOURCE}: {model.id}"
    if known is not None and (known.source, known.text, known.content) == (source, model.text, model.content):
        return known
    config = parse_config(model.content, source=source, folder=None, text=model.text)
    if config.id != model.id:
        raise ConfigError(f"{source}: sie_id: {config.id!r} is not the id that the export lists it under, {model.id!r}")
    return config
