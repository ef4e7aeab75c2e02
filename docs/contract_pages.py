"""Writes the pages of public modules from their docstrings: fields, methods, types and units."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Literal, get_args, get_origin

LONGEST = 60
"""Characters of a value that a page shows."""


def page(module: ModuleType) -> str:
    """List everything that a module exports, by name: classes and functions, then a table of the values."""
    names = sorted(module.__all__, key=str.lower)
    found = {name: getattr(module, name) for name in names}
    described = [_described(each) for each in found.values() if _is_code(each)]
    rows = [f"| `{name}` | {_value(each)} |" for name, each in found.items() if not _is_code(each)]
    if rows:
        described.append("| value | |\n|---|---|\n" + "\n".join(rows) + "\n")
    return "\n".join(described)


def pages(modules: Iterable[ModuleType]) -> str:
    """List what several modules export; what one takes from another is described there, and only named here."""
    parts, owners = [], dict[object, str]()
    for module in modules:
        taken: dict[str, list[str]] = {}
        own = ModuleType(module.__name__)
        for name in module.__all__:
            found = getattr(module, name)
            shared = _is_code(found) or get_origin(found)
            owner = owners.setdefault(id(found) if shared else (module.__name__, name), module.__name__)
            if owner == module.__name__:
                setattr(own, name, found)
            else:
                taken.setdefault(owner, []).append(f"`{name}`")
        own.__all__ = [name for name in module.__all__ if hasattr(own, name)]
        parts += [f"## `{module.__name__}`\n\n{inspect.getdoc(module)}\n", page(own)]
        parts += [f"As in `{owner}`: {', '.join(names)}.\n" for owner, names in taken.items()]
    return "\n".join(parts)


def _is_code(found: object) -> bool:
    return inspect.isclass(found) or inspect.isfunction(found)


def _value(found: object) -> str:
    if isinstance(told := getattr(found, "description", None), str):  # an option
        return f"`{found.name}`: {told}"  # type: ignore[attr-defined]
    if get_origin(found) is Literal:
        return ", ".join(f"`{each!r}`" for each in get_args(found))
    if isinstance(found, str | int | float) and len(repr(found)) <= LONGEST:
        return f"`{found!r}`"
    return "a type" if get_origin(found) else f"a `{type(found).__name__}`"


def _described(found: type | object) -> str:
    name = found.__name__  # type: ignore[union-attr]
    node = ast.parse(textwrap.dedent(inspect.getsource(found))).body[0]  # type: ignore[arg-type]
    if isinstance(node, ast.FunctionDef):
        return f"### `{_signature(node)}`\n\n{_text(node)}\n"
    assert isinstance(node, ast.ClassDef)
    bases = ", ".join(ast.unparse(base) for base in node.bases)
    parts = [f"### `{name}`{f' ({bases})' if bases else ''}\n\n{_text(node)}\n"]
    rows = list(_fields(node))
    if rows:
        parts.append("| field | type | default | meaning |\n|---|---|---|---|\n" + "\n".join(rows) + "\n")
    functions = [each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
    parts += [f"**`{_signature(each)}`**\n\n{_text(each)}\n" for each in functions if not each.name.startswith("_")]
    return "\n".join(parts)


def _text(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    return (ast.get_docstring(node) or "").strip()


def _signature(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    given = ast.unparse(node.args).removeprefix("self, ").removeprefix("cls, ")
    given = "" if given in ("self", "cls") else given
    asked = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    return f"{asked}{node.name}({given}){f' -> {ast.unparse(node.returns)}' if node.returns else ''}"


def _fields(node: ast.ClassDef) -> Iterator[str]:
    """Make a row of each field, with the string below it."""
    for place, each in enumerate(node.body):
        if not isinstance(each, ast.AnnAssign) or not isinstance(each.target, ast.Name) or each.target.id[0] == "_":
            continue
        below = node.body[place + 1] if place + 1 < len(node.body) else None
        told = ""
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            told = inspect.cleandoc(str(below.value.value)).replace("\n", " ")
        default = f"`{ast.unparse(each.value)}`" if each.value is not None else ""
        cells = (f"`{each.target.id}`", f"`{ast.unparse(each.annotation)}`", default, told)
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
