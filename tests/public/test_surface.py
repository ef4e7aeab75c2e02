"""What plugins stand on changes only if somebody says so: every public name, signature and field is in a snapshot."""

from __future__ import annotations

import dataclasses
import importlib
import inspect

import pytest

from tests.public.surface import CHANGES, SNAPSHOT, changes, public_modules, read, surface

REMEDY = """tests/public/changes.txt does not list what changed since the last release. If that is meant, it holds

{}

A minor change needs a line in CHANGELOG.md. A major one needs a new version of its interface in
sie_core/plugins/registration.py, the one before it still served, and a line in docs/extend/compatibility.md."""
BEFORE = {
    "m.C": "dataclass (object) [a, b, *, c, d]",
    "m.C.a": "field int, required",
    "m.C.b": "field int, required",
    "m.C.c": "field int, optional",
    "m.C.d": "field int, optional",
    "m.A": "class (ABC)",
    "m.A.run": "abstract method (self) -> None",
    "m.P": "class (Protocol)",
    "m.f": "function (a: int) -> int",
}
FIELDS = "dataclass (object) [{}]"


def test_every_change_of_a_public_name_is_classed():
    found = changes(read(SNAPSHOT), surface())

    assert CHANGES.read_text(encoding="utf-8").splitlines() == found, REMEDY.format("\n".join(found))


@pytest.mark.parametrize(
    ("now", "classed"),
    [
        ({"m.C": FIELDS.format("a, b, *, c, d, e"), "m.C.e": "field int, optional"}, ["minor added m.C.e"]),
        ({"m.C": FIELDS.format("a, b, *, e, c, d"), "m.C.e": "field int, required"}, ["major added m.C.e"]),
        ({"m.C": FIELDS.format("a, b, *, c"), "m.C.d": None}, ["major removed m.C.d"]),
        ({"m.C": FIELDS.format("b, a, *, c, d")}, ["major changed m.C"]),
        ({"m.C": FIELDS.format("a, b, *, d, c")}, ["major changed m.C"]),
        ({"m.C": FIELDS.format("a, *, b, c, d")}, ["major changed m.C"]),
        ({"m.C.a": "field str, required"}, ["major changed m.C.a"]),
        ({"m.C.d": "field int, required"}, ["major changed m.C.d"]),
        ({"m.A.stop": "method (self) -> None"}, ["minor added m.A.stop"]),
        ({"m.A.stop": "abstract method (self) -> None"}, ["major added m.A.stop"]),
        ({"m.P.stop": "method (self) -> None"}, ["major added m.P.stop"]),
        ({"m.f": "function (a: int, b: int) -> int"}, ["major changed m.f"]),
        ({"m.g": "function () -> None"}, ["minor added m.g"]),
        ({"m.E": FIELDS.format("a"), "m.E.a": "field int, required"}, ["minor added m.E", "minor added m.E.a"]),
        ({"m.f": None}, ["major removed m.f"]),
    ],
)
def test_a_change_is_minor_if_plugins_need_not_follow_it(now, classed):
    after = {path: told for path, told in {**BEFORE, **now}.items() if told is not None}

    assert [each.partition(" = ")[0] for each in changes(BEFORE, after)] == classed


def test_public_dataclasses_take_three_fields_by_position_at_most():
    for name in public_modules():
        module = importlib.import_module(name)
        for key in getattr(module, "__all__", vars(module)):
            value = getattr(module, key)
            if inspect.isclass(value) and dataclasses.is_dataclass(value) and value.__module__.startswith(name):
                by_position = [each.name for each in dataclasses.fields(value) if each.init and not each.kw_only]
                assert len(by_position) <= 3, f"{value}: {by_position}"
