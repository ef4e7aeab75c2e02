"""Describes every public name of the core, sie-kit, sie-text and sie-pytorch: signatures, fields, members.

`python -m tests.public.surface` writes the snapshot anew, for a release, and empties the list of changes.
"""

from __future__ import annotations

import configparser
import dataclasses
import importlib
import inspect
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SNAPSHOT, CHANGES = HERE / "snapshot.txt", HERE / "changes.txt"
LISTS = ("plugins", "plugins-of-text", "plugins-of-pytorch")
OF = ("sie_core", "sie_kit", "sie_text", "sie_pytorch")


def public_modules() -> list[str]:
    """List the modules that plugins may import, off the contracts that hold them to it."""
    parser = configparser.ConfigParser()
    parser.read(ROOT / ".importlinter", encoding="utf-8")
    lines = [line for name in LISTS for line in parser[f"importlinter:contract:{name}"]["ignore_imports"].splitlines()]
    modules = {line.removeprefix("** -> ") for line in lines if line}
    return sorted(module for module in modules if module.partition(".")[0] in OF)


def surface() -> dict[str, str]:
    """Describe each public name, and each member of a public class, in a line."""
    described: dict[str, str] = {}
    for name in public_modules():
        module = importlib.import_module(name)
        own = [key for key, value in vars(module).items() if key[0] != "_" and _home(value) == name]
        for key in sorted(getattr(module, "__all__", own)):
            described |= _described(f"{name}.{key}", getattr(module, key))
    return described


def _home(value: Any) -> str | None:
    return getattr(value, "__module__", None) if inspect.isclass(value) or inspect.isfunction(value) else None


def _described(path: str, value: Any) -> dict[str, str]:
    if inspect.isclass(value):
        return {path: _kind(value), **{f"{path}.{name}": told for name, told in _members(value)}}
    if inspect.isfunction(value):
        return {path: f"function {_signature(value)}"}
    simple = isinstance(value, str | int | float) or getattr(type(value), "__module__", "") == "typing"
    return {path: f"value {value!r}" if simple else f"value of {type(value).__name__}"}


def _kind(value: type) -> str:
    bases = ", ".join(base.__name__ for base in value.__bases__)
    if not dataclasses.is_dataclass(value):
        return f"class ({bases})"
    by_position = [each.name for each in dataclasses.fields(value) if each.init and not each.kw_only]
    by_name = [each.name for each in dataclasses.fields(value) if each.init and each.kw_only]
    return f"dataclass ({bases}) [{', '.join([*by_position, '*', *by_name])}]"


def _members(value: type) -> Iterator[tuple[str, str]]:
    fields = {each.name: each for each in dataclasses.fields(value)} if dataclasses.is_dataclass(value) else {}
    for name, field in fields.items():
        if not name.startswith("_"):
            yield name, f"field {field.type}{_default(field)}"
    for name, annotation in inspect.get_annotations(value).items():
        if not name.startswith("_") and name not in fields:
            yield name, f"attribute {annotation}"
    for name, member in vars(value).items():
        if name.startswith("_") and (name != "__init__" or fields or getattr(value, "_is_protocol", False)):
            continue
        if isinstance(member, property):
            yield name, "property"
        elif inspect.isfunction(getattr(member, "__func__", member)):
            function = getattr(member, "__func__", member)
            required = "abstract " if getattr(function, "__isabstractmethod__", False) else ""
            yield name, f"{required}method {_signature(function)}"


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
        return ", required"
    return ", optional"


def _signature(function: Any) -> str:
    return str(inspect.signature(function)).replace("'", "")


def read(file: Path) -> dict[str, str]:
    """Read a snapshot."""
    lines = file.read_text(encoding="utf-8").splitlines()
    return dict(line.split(" = ", 1) for line in lines)


def changes(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """List what became of each name, with the class of the change.

    An addition is minor, unless plugins must follow it: a required field, or a method of a Protocol or an abstract one.
    """
    found = []
    for path in sorted(before.keys() | now.keys()):
        if path not in now:
            found.append(f"major removed {path}")
        elif path not in before:
            owner = before.get(path.rpartition(".")[0], "")
            must = now[path].startswith("abstract") or now[path].endswith(", required") or "Protocol" in owner
            found.append(f"{'major' if owner and must else 'minor'} added {path} = {now[path]}")
        elif _core(before[path], now[path]) != _core(now[path], before[path]):
            found.append(f"major changed {path} = {now[path]}")
    return found


def _core(told: str, other: str) -> str:
    """Reduce the fields of a dataclass to those that both have, whose order counts; a field of its own line comes."""
    head, bracket, fields = told.partition("[")
    if not bracket or not told.startswith("dataclass"):
        return told
    theirs = other.partition("[")[2].rstrip("]").split(", ")
    return f"{head}[{', '.join(each for each in fields.rstrip(']').split(', ') if each in theirs)}]"


if __name__ == "__main__":
    SNAPSHOT.write_text("".join(f"{path} = {told}\n" for path, told in surface().items()), encoding="utf-8")
    CHANGES.write_text("", encoding="utf-8")
