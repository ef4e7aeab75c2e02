"""An export of the config service: every config it holds, as one value, in place of folders and weights found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sie_core.catalog.configs.reading import ConfigError, describe_problems, parse_config
from sie_core.catalog.sources.folder import ConfigFile
from sie_core.contracts import ModelConfig

SOURCE = "config service"


@dataclass(frozen=True, slots=True)
class ExportedModel:
    """One config of an export."""

    id: str
    content: Mapping[str, Any]
    """What its YAML says."""
    text: str
    """Its YAML."""
    bundles: tuple[str, ...] = ()
    """The bundles that serve any of its profiles."""


@dataclass(frozen=True, slots=True)
class Export:
    """The configs of a config service at one epoch."""

    epoch: int
    models: tuple[ExportedModel, ...] = ()

    def files(self) -> Sequence[ConfigFile]:
        """List the configs by their ids; `read` of one raises `ConfigError` where a field is wrong."""
        return [ConfigFile(f"{SOURCE}: {each.id}", partial(_read, each)) for each in self.models]


def read_export(data: object) -> Export:
    """Check what `GET /v1/configs/export` answered, parsed as JSON, and turn it into an `Export`.

    Unknown fields are left aside: a newer service may tell more.

    Raises:
        ConfigError: A field is missing or wrong; every wrong one is named, a line each.
    """
    try:
        read = _Snapshot.model_validate(data)
    except ValidationError as error:
        raise ConfigError("\n".join(f"{SOURCE}: export: {line}" for line in describe_problems(error))) from None
    models = (
        ExportedModel(each.model_id, each.model_config_, each.raw_yaml, tuple(each.affected_bundles))
        for each in read.models
    )
    return Export(read.epoch, tuple(sorted(models, key=lambda each: each.id)))


class _Model(BaseModel):
    model_config = ConfigDict(strict=True, protected_namespaces=())

    model_id: str
    model_config_: Annotated[dict[str, Any], Field(alias="model_config")]
    raw_yaml: str = ""
    affected_bundles: list[str] = Field(default_factory=list)


class _Snapshot(BaseModel):
    model_config = ConfigDict(strict=True)

    snapshot_version: Literal[1]
    epoch: Annotated[int, Field(ge=0)]
    models: list[_Model]


def _read(model: ExportedModel) -> ModelConfig:
    source = f"{SOURCE}: {model.id}"
    config = parse_config(model.content, source=source, folder=None, text=model.text)
    if config.id != model.id:
        raise ConfigError(f"{source}: sie_id: {config.id!r} is not the id that the export lists it under, {model.id!r}")
    return config
