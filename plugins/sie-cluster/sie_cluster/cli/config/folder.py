"""A folder of model configs as its author wrote it: each file's model, and what is wrong with it, by file and line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from sie_cluster.config_service.writing.bodies import ID_FIELDS, check_id
from sie_core.catalog.configs.reading import LARGEST_CONFIG
from sie_core.catalog.configs.yaml_text import YamlFault, line_of, load_yaml
from sie_core.contracts import InferenceError


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong with a file."""

    file: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}"


@dataclass(frozen=True, slots=True)
class Written:
    """The config of a model in a file."""

    id: str
    file: str
    text: bytes
    content: Mapping[str, Any]

    def problem(self, loc: str, message: str) -> Problem:
        """Name the line of a field, `profiles.default`, or of the nearest there is."""
        return Problem(self.file, line_of(self.text, loc.split(".")), message)


@dataclass(frozen=True, slots=True)
class Folder:
    """What a folder holds."""

    models: Mapping[str, Written] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()


def read_folder(folder: Path) -> Folder:
    """Read the `.yaml` and `.yml` files of a folder and of those below it but hidden ones.

    Raises:
        ClickException: There is none; a mistyped path must not count as a folder without models.
    """
    models: dict[str, Written] = {}
    problems: list[Problem] = []
    files = list(_files(folder))
    if not files:
        raise click.ClickException(f"{folder}: no .yaml file is in it or below it.")
    for file in files:
        read = _read(file)
        if isinstance(read, Problem):
            problems.append(read)
        elif read.id in models:
            first = models[read.id].problem("sie_id", "")
            told = f"sie_id {read.id}: {first.file}:{first.line} has this id too; keep one of them."
            problems.append(read.problem("sie_id", told))
        else:
            models[read.id] = read
    return Folder(models, tuple(problems))


def _files(folder: Path) -> Iterator[Path]:
    for file in sorted(folder.rglob("*.y*ml")):
        hidden = any(part.startswith(".") for part in file.relative_to(folder).parts)
        if file.suffix in (".yaml", ".yml") and not hidden and file.is_file():
            yield file


def _read(file: Path) -> Written | Problem:
    try:
        if (size := file.stat().st_size) > LARGEST_CONFIG:
            return Problem(str(file), 1, f"it has {size} bytes; a config has {LARGEST_CONFIG} at most")
        text = file.read_bytes()
        content = load_yaml(text)
    except YamlFault as fault:
        return Problem(str(file), fault.line, str(fault))
    except OSError as error:
        return Problem(str(file), 1, f"cannot be read: {error.strerror}")
    if not isinstance(content, dict):
        return Problem(str(file), 1, f"a model config is a map of fields, not {type(content).__name__}")
    name = next((each for each in ID_FIELDS if each in content), None)
    try:
        model_id = check_id(None if name is None else content[name])
    except InferenceError as error:
        return Problem(str(file), line_of(text, [name] if name else []), error.message)
    return Written(model_id, str(file), text, content)
