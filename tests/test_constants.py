"""Each numeric constant of the core says what it bounds, and few of them tune the scheduler."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import sie_core

CORE = Path(sie_core.__path__[0])
MOST_THAT_TUNE = 12
"""Constants that a reader of the scheduler can have in mind."""


def is_numeric(value: ast.expr | None) -> bool:
    """Whether an expression is arithmetic that has a number in it."""
    parts = [] if value is None else list(ast.walk(value))
    known = (ast.Constant, ast.Name, ast.BinOp, ast.UnaryOp, ast.Tuple, ast.operator, ast.unaryop, ast.expr_context)
    constants = [part.value for part in parts if isinstance(part, ast.Constant)]
    numbers = [each for each in constants if type(each) in (int, float)]
    return bool(numbers) and len(numbers) == len(constants) and all(isinstance(part, known) for part in parts)


def names_of(statement: ast.stmt) -> tuple[list[str], ast.expr | None]:
    """Return what a statement assigns to, and the value."""
    if isinstance(statement, ast.Assign):
        targets: list[ast.expr] = statement.targets
    elif isinstance(statement, ast.AnnAssign):
        targets = [statement.target]
    else:
        return [], None
    return [each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)], statement.value


def numeric_constants(source: str) -> Iterator[tuple[ast.stmt, str, bool]]:
    """Find the numeric constants of a module, each with its name and whether it is explained.

    The explanation is a string after it, or a comment before it and the other ones directly above it.
    """
    lines, body = source.splitlines(), ast.parse(source).body
    for statement, following in zip(body, [*body[1:], None], strict=True):
        names, value = names_of(statement)
        if not any(name.isupper() for name in names) or not is_numeric(value):
            continue
        after = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
        above = statement.lineno - 2
        while is_constant(lines[above]):
            above -= 1
        yield statement, ", ".join(names), after or lines[above].startswith("#")


def is_constant(line: str) -> bool:
    """Whether a line is the whole of a numeric constant."""
    try:
        parsed = ast.parse(line).body
    except SyntaxError:
        return False
    return bool(parsed) and is_numeric(names_of(parsed[0])[1])


def modules() -> list[Path]:
    return sorted(CORE.rglob("*.py"))


def test_each_numeric_constant_of_the_core_says_what_it_bounds() -> None:
    found = [(file, *each) for file in modules() for each in numeric_constants(file.read_text())]
    bare = [
        f"{file.relative_to(CORE.parent)}:{statement.lineno} {name}"
        for file, statement, name, explained in found
        if not explained
    ]
    assert len(found) > 200
    assert not bare, "say what it bounds, in a string after it or a comment before it:\n" + "\n".join(bare)


def test_few_constants_tune_the_scheduler() -> None:
    found = [
        f"{file.name}:{name}"
        for file in modules()
        if file.is_relative_to(CORE / "batching")
        for statement, name, _ in numeric_constants(file.read_text())
        if not is_range(statement)
    ]
    assert 0 < len(found) <= MOST_THAT_TUNE, found


def is_range(statement: ast.stmt) -> bool:
    """Whether the constant is written as `1 << n`: the range that a place's number has room in, which tunes nothing."""
    value = names_of(statement)[1]
    return isinstance(value, ast.BinOp) and isinstance(value.op, ast.LShift)


@pytest.mark.parametrize(
    ("source", "explained"),
    [
        ("A = 1\n", [False]),
        ('A = 1\n"""Seconds of a wait."""\n', [True]),
        ("# Seconds of a wait, and of two.\nA = 1.0\nB: Final = 2 * A\n", [True, True]),
        ('A = 1\n"""Seconds of a wait."""\nB = 2\n', [True, False]),
        ("# Seconds of a wait.\n\nA = -1\n", [False]),
        ("A, B = 1, 2\n", [False]),
        ("# Units of a name.\nA = f()\nB = 1\n", [False]),
        ('A = "1"\nb = 1\nC = f(1)\nD = True\n', []),
    ],
)
def test_a_constant_is_explained_by_a_string_after_it_or_a_comment_before_it(
    source: str, explained: list[bool]
) -> None:
    assert [each for _, _, each in numeric_constants(f"import x\n\n{source}")] == explained
