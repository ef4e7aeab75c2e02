"""Reads bundles from a folder that holds a folder for each, with its `bundle.yaml`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from sie_bundle.bundles.names import DEFAULT_PRIORITY, FILE
from sie_bundle.bundles.schema import WholeBundle
from sie_core.catalog import LARGEST_CONFIG, UnfitFile, YamlFault, describe_problem, line_of, load_yaml, read_regular
from sie_core.settings import SettingsError


class BundleError(SettingsError):
    """Bundles cannot be used; the message names file, field, value and remedy, a line for each problem."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """The plugins installed on one kind of worker, and further models that it serves."""

    name: str
    priority: int = DEFAULT_PRIORITY
    """If several bundles serve a model, the lowest priority wins, then the first name."""
    plugins: tuple[str, ...] = ()
    """Plugins by entry point or distribution, as in `SIE_PLUGINS`."""
    models: tuple[str, ...] = ()
    """Models it serves whatever its families claim: `id` for all profiles, `id:profile` for one, `*` for all models
    whose config names no family."""
    source: str = ""
    """Its file."""
    default: bool = False
    """Whether `sie bundle` uses it if no name is given."""


def shipped_bundles() -> Path:
    """Return the folder of the shipped bundles: in the package, or next to it in a checkout."""
    package = Path(__file__).parents[1]
    inside = package / "shipped"
    return inside if inside.is_dir() else package.parents[2] / "bundles"


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
    problems += [
        f"{other.source}: default: another bundle of {folder} is the default already; one can be"
        for other in [bundle for bundle in bundles.values() if bundle.default][1:]
    ]
    if problems:
        raise BundleError("\n".join(problems))
    return tuple(sorted(bundles.values(), key=lambda each: (each.priority, each.name)))


def read_bundle(file: Path) -> Bundle:
    """Read the parts of one bundle that workers and gateways need.

    Raises:
        BundleError: The file cannot be read, or a field is wrong.
    """
    return BundleFile.read(file).bundle()


def read_whole(file: Path) -> WholeBundle:
    """Read one bundle with all of its fields.

    Raises:
        BundleError: The file cannot be read, or a field is wrong.
    """
    return BundleFile.read(file).whole


@dataclass(frozen=True, slots=True)
class BundleFile:
    """A bundle with its text, so that later faults can be named by line too."""

    path: Path
    content: bytes
    whole: WholeBundle

    @classmethod
    def read(cls, file: Path) -> BundleFile:
        """Read a file; the bundle's name defaults to its folder's.

        Raises:
            BundleError: It cannot be read, or a field is wrong.
        """
        try:
            content = read_regular(file, LARGEST_CONFIG)
            data = load_yaml(content)
        except (OSError, UnfitFile) as error:
            raise BundleError(f"{file}: cannot be read: {error}") from error
        except YamlFault as fault:
            raise BundleError(f"{file}:{fault.line}: {fault}") from None
        if not isinstance(data, dict):
            raise BundleError(f"{file}:1: a bundle is a map of fields, not {type(data).__name__}")
        try:
            return cls(file, content, WholeBundle.model_validate({"name": file.absolute().parent.name, **data}))
        except ValidationError as error:
            lines = (
                f"{file}:{_line(content, problem)}: {describe_problem(problem)}"
                for problem in error.errors(include_url=False)
            )
            raise BundleError("\n".join(lines)) from None

    def at(self, *path: str | int) -> str:
        """Name the file and the line of a field."""
        return f"{self.path}:{line_of(self.content, path)}"

    def bundle(self) -> Bundle:
        """Leave out the fields that placing models does not need."""
        whole = self.whole
        return Bundle(
            whole.name,
            whole.priority,
            tuple(plugin.distribution for plugin in whole.plugins),
            tuple(model.id for model in whole.models),
            str(self.path),
            whole.default,
        )


def _line(content: bytes, problem: ErrorDetails) -> int:
    """Return the line of a wrong field, or of the key that should not be there."""
    keys = [key] if (key := problem.get("ctx", {}).get("key")) else []
    return line_of(content, [*problem["loc"], *keys])
