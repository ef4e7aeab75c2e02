"""Reads bundles from a folder that holds a folder for each, with its `bundle.yaml`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

import sie_core
from sie_core.catalog.configs.ids import ID_RULE, is_model_id
from sie_core.catalog.configs.reading import LARGEST_CONFIG, describe_problems
from sie_core.catalog.configs.schema import Strict
from sie_core.catalog.configs.yaml_text import YamlFault, load_yaml
from sie_core.catalog.regular_file import UnfitFile, read_regular
from sie_core.catalog.wording import short
from sie_core.settings import SettingsError

FILE = "bundle.yaml"
EVERY_MODEL = "*"
"""In `models`: every model whose config names no family."""
DEFAULT_PRIORITY = 100
DERIVED = ("adapters", "engine")
"""Fields of bundles that were written for another server."""


class BundleError(SettingsError):
    """Bundles cannot be used; the message names file, field, value and remedy, a line for each problem."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """The plugins that workers of one kind have installed, and models that they serve beyond what these claim."""

    name: str
    priority: int = DEFAULT_PRIORITY
    """Of several bundles that serve a model, the one with the lowest priority is taken; then the first by name."""
    plugins: tuple[str, ...] = ()
    """Plugins by entry point or distribution, as in `SIE_PLUGINS`."""
    models: tuple[str, ...] = ()
    """Models it serves whatever its families claim: `id` for all profiles, `id:profile` for one, `*` for all models
    whose config names no family."""
    source: str = ""
    """Its file."""


def shipped_bundles() -> Path:
    """Return the folder of the bundles that this installation holds: in the package, or beside it in a checkout."""
    package = Path(sie_core.__file__).parent
    inside = package / "bundles"
    return inside if inside.is_dir() else package.parent / "bundles"


def read_bundles(folder: Path) -> tuple[Bundle, ...]:
    """Read `<folder>/<id>/bundle.yaml` of every bundle, by priority, then by name.

    Raises:
        BundleError: The folder cannot be listed or holds no bundle, a file is wrong, or two bundles have one name.
    """
    try:
        files = sorted(each / FILE for each in folder.iterdir() if (each / FILE).exists())
    except OSError as error:
        raise BundleError(
            f"SIE_BUNDLES_DIR={folder}: cannot be read: {error.strerror}. Name a folder of bundles."
        ) from error
    if not files:
        raise BundleError(f"SIE_BUNDLES_DIR={folder}: holds no bundle. Each is a folder in it with a file {FILE}.")
    bundles: dict[str, Bundle] = {}
    problems = []
    for file in files:
        try:
            bundle = read_bundle(file)
        except BundleError as error:
            problems.append(str(error))
            continue
        first = bundles.setdefault(bundle.name, bundle)
        if first is not bundle:
            problems.append(f"{file}: name: {bundle.name!r} is the name of {first.source} too; rename one of them")
    if problems:
        raise BundleError("\n".join(problems))
    return tuple(sorted(bundles.values(), key=lambda each: (each.priority, each.name)))


def read_bundle(file: Path) -> Bundle:
    """Read one bundle; its name is that of its folder where the file gives none.

    Raises:
        BundleError: The file cannot be read, or a field is wrong.
    """
    try:
        data = load_yaml(read_regular(file, LARGEST_CONFIG))
    except (OSError, UnfitFile) as error:
        raise BundleError(f"{file}: cannot be read: {error}") from error
    except YamlFault as fault:
        raise BundleError(f"{file}: {fault}") from None
    if not isinstance(data, dict):
        raise BundleError(f"{file}: a bundle is a map of fields, not {type(data).__name__}")
    try:
        parsed = _BundleFile.model_validate({"name": file.parent.name, **data})
    except ValidationError as error:
        raise BundleError("\n".join(f"{file}: {line}" for line in describe_problems(error))) from None
    return Bundle(parsed.name, parsed.priority, tuple(parsed.plugins), tuple(parsed.models), str(file))


class _BundleFile(Strict):
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
    priority: int = DEFAULT_PRIORITY
    plugins: list[Annotated[str, Field(min_length=1)]] = Field(default_factory=list)
    models: list[str] = Field(default_factory=list)

    @model_validator(mode="before")
    @classmethod
    def _nothing_derived(cls, data: Any) -> Any:
        for field in DERIVED:
            if field in data:
                _refuse(f"`{field}` is derived from `plugins` here: leave it out, and list the plugins that serve")
        return data

    @model_validator(mode="after")
    def _serves_something(self) -> _BundleFile:
        if not self.plugins and not self.models:
            _refuse("`plugins` and `models` are empty, so it serves nothing: name a plugin or a model")
        for index, model in enumerate(self.models):
            if model != EVERY_MODEL and not is_model_id(model):
                _refuse(f"`models.{index}` is {short(model)}; an id is {ID_RULE}")
        return self


def _refuse(message: str) -> None:
    raise PydanticCustomError("config", "{message}", {"message": message})
