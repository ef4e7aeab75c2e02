"""Writes the page of the contracts from the docstrings of `sie_core.contracts`: fields, methods, types and units."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from types import ModuleType


def page(module: ModuleType) -> str:
    """List every class and function that a module exports, by name."""
    found = [getattr(module, name) for name in sorted(module.__all__, key=str.lower)]
    return "\n".join(_described(each) for each in found if inspect.isclass(each) or inspect.isfunction(each))


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
