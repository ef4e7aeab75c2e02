"""The shape of a bundle's file: strict, every level closed to unknown keys; short forms become their long ones."""

from __future__ import annotations

import re
from datetime import date
from typing import Annotated, Any, Literal

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version
from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from sie_bundle.bundles.names import DEFAULT_PRIORITY, DERIVED, EVERY_MODEL, LEFT_OUT, NAME
from sie_core.catalog import ID_RULE, Strict, is_model_id, short

PlatformName = Literal["cpu", "cuda"]
SettingValue = str | int | float | bool | list[str]

_DISTRIBUTION = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?\Z")
_BASE = re.compile(r"[a-z0-9]([a-z0-9._/:-]*[a-z0-9])?@sha256:[0-9a-f]{64}\Z")
_INDEX = re.compile(r"(https?|file)://[^\s@?#]+\Z")
_COMMIT = re.compile(r"[0-9a-f]{40}\Z")
_PYTHON = re.compile(r"3\.(1[1-9]|[2-9][0-9])\Z")


def variable_text(value: SettingValue) -> str:
    """Write the value of a setting as an environment variable has it."""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(value) if isinstance(value, list) else str(value)


def _refuse(message: str, **context: str) -> PydanticCustomError:
    return PydanticCustomError("config", "{message}", {"message": message, **context})


def _distribution(value: str) -> str:
    if not _DISTRIBUTION.match(value):
        raise _refuse(f"{short(value)} names no plugin: letters, digits and . _ - between them, no path")
    return value


def _range(value: str) -> str:
    try:
        SpecifierSet(value)
    except InvalidSpecifier:
        raise _refuse(f"{short(value)} is no range of versions; write one as '>=1.2,<2' or '==1.2.3'") from None
    return value


def _override_spec(value: str) -> str:
    return value if value == LEFT_OUT else _range(value)


def _requirement(value: str) -> str:
    try:
        url = Requirement(value).url
    except InvalidRequirement:
        raise _refuse(f"{short(value)} is no requirement; write one as 'sglang==0.5.23'") from None
    if url is not None:
        raise _refuse(
            f"{short(value)} names a URL, which no index vouches for; put the wheel into the folder of wheels"
        )
    return value


def _model(value: str) -> str:
    if value != EVERY_MODEL and not is_model_id(value):
        raise _refuse(f"{short(value)}; an id is {ID_RULE}")
    return value


def _commit(value: str) -> str:
    if not _COMMIT.match(value):
        raise _refuse(f"{short(value)} is no pin: write the commit's 40 hex digits, which `sie models pin` finds")
    return value


def _python(value: str) -> str:
    if not _PYTHON.match(value):
        raise _refuse(f"{short(value)} is no version of Python that SIE runs on; write '3.11' or newer, in quotes")
    return value


def _base(value: str) -> str:
    if not _BASE.match(value):
        raise _refuse(
            f"{short(value)} is no image by digest; write 'registry/name@sha256:<64 hex digits>', no tag alone"
        )
    return value


def _index(value: str) -> str:
    if "@" in value:
        raise _refuse("the index holds a user or password, which an image would hold too; put them into ~/.netrc")
    if not _INDEX.match(value):
        raise _refuse(f"{short(value)} is no index; write it as https://host/path, without ? and #")
    return value


def _version(value: str) -> str:
    try:
        Version(value)
    except InvalidVersion:
        raise _refuse(f"{short(value)} is no version; write one as '2.13.0+cpu'") from None
    return value


def _short_form(field: str) -> Any:
    """Let a text stand for a map of one field."""

    def expand(data: Any) -> Any:
        return {field: data} if isinstance(data, str) else data

    return model_validator(mode="before")(staticmethod(expand))


class PluginEntry(Strict):
    """A plugin by its entry point or distribution, with its extras, on all platforms of the bundle or on some."""

    distribution: Annotated[str, AfterValidator(_distribution)]
    extras: list[Annotated[str, AfterValidator(_distribution)]] = Field(default_factory=list)
    range: Annotated[str, AfterValidator(_range)] = ""
    platforms: Annotated[list[PlatformName], Field(min_length=1)] | None = None

    _short = _short_form("distribution")


class ModelEntry(Strict):
    """A model by `id`, `id:profile` or `*`; `revision` pins its weights, and `bake` puts them into the image."""

    id: Annotated[str, AfterValidator(_model)]
    revision: Annotated[str, AfterValidator(_commit)] | None = None
    bake: bool = False

    _short = _short_form("id")

    @model_validator(mode="after")
    def _one_model(self) -> ModelEntry:
        if self.id == EVERY_MODEL and (self.bake or self.revision):
            raise _refuse(f"{EVERY_MODEL!r} stands for many models: name the one whose weights are pinned or baked")
        return self


class Override(Strict):
    """A requirement of other distributions that is overridden: `package` is resolved by `spec` alone, or left out."""

    package: Annotated[str, AfterValidator(_distribution)]
    spec: Annotated[str, Field(min_length=1), AfterValidator(_override_spec)]
    """A range of versions, or `none`: the package is not installed."""
    reason: Annotated[str, Field(min_length=10)]
    """The reason, for a reader in a year."""
    until: date | None = None
    """The day after which it has to be looked at again."""

    @model_validator(mode="before")
    @classmethod
    def _needs_a_reason(cls, data: Any) -> Any:
        if isinstance(data, dict) and not str(data.get("reason") or "").strip():
            raise _refuse(
                "an override needs a `reason`: say who wants what, and why the other version works all the same"
            )
        return data


class Environment(Strict):
    """A separate environment next to the server's, for a library whose requirements conflict with it."""

    requires: Annotated[list[Annotated[str, AfterValidator(_requirement)]], Field(min_length=1)]
    platforms: Annotated[list[PlatformName], Field(min_length=1)] | None = None
    overrides: list[Override] = Field(default_factory=list)


class Platform(Strict):
    """Pins for the image of one platform: `index` is an additional package index, `torch` an exact version."""

    base: Annotated[str, AfterValidator(_base)] | None = None
    index: Annotated[str, AfterValidator(_index)] | None = None
    torch: Annotated[str, AfterValidator(_version)] | None = None


def _cpu_alone() -> dict[PlatformName, Platform]:
    return {"cpu": Platform()}


class WholeBundle(Strict):
    """A bundle as its file states it."""

    name: Annotated[str, Field(pattern=f"^{NAME}$")]
    priority: int = DEFAULT_PRIORITY
    default: bool = False
    """Whether `sie bundle` uses it if no name is given; at most one bundle of a folder."""
    python: Annotated[str, AfterValidator(_python)] = "3.11"
    plugins: list[PluginEntry] = Field(default_factory=list)
    models: list[ModelEntry] = Field(default_factory=list)
    settings: dict[Annotated[str, Field(pattern=r"^SIE_[A-Z0-9_]+$")], SettingValue] = Field(default_factory=dict)
    overrides: list[Override] = Field(default_factory=list)
    environments: dict[Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,31}$")], Environment] = Field(
        default_factory=dict
    )
    platforms: dict[PlatformName, Platform] = Field(default_factory=_cpu_alone)

    @model_validator(mode="before")
    @classmethod
    def _nothing_derived(cls, data: Any) -> Any:
        for field in DERIVED:
            if field in data:
                told = f"`{field}` is derived from `plugins` here: leave it out, and list the plugins that serve"
                raise _refuse(told, key=field)
        return data

    @model_validator(mode="after")
    def _serves_something(self) -> WholeBundle:
        if not self.plugins and not self.models:
            raise _refuse("`plugins` and `models` are empty, so it serves nothing: name a plugin or a model")
        if not self.platforms:
            raise _refuse("`platforms` is empty, so it runs nowhere: name cpu or cuda, or leave the field out")
        return self
