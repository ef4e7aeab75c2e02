"""Bundle files: those that ship, what loads, and what an error names."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest
from sie_bundle.bundles.reading import (
    Bundle,
    BundleError,
    read_bundle,
    read_bundles,
    read_whole,
    shipped_bundles,
)


@pytest.fixture
def write_bundle(tmp_path: Path) -> Callable[[str, str], Path]:
    """Write the bundle of a folder below `tmp_path`."""

    def write(folder: str, text: str) -> Path:
        (tmp_path / folder).mkdir()
        file = tmp_path / folder / "bundle.yaml"
        file.write_text(text, encoding="utf-8")
        return file

    return write


def test_the_shipped_bundles_load() -> None:
    assert [bundle.name for bundle in read_bundles(shipped_bundles())] == ["default", "gliner", "sglang", "cpu"]


def test_a_bundle_has_the_name_of_its_folder_and_the_priority_100(write_bundle: Callable[[str, str], Path]) -> None:
    file = write_bundle("mine", "plugins: [pytorch]")
    assert read_bundle(file) == Bundle("mine", 100, ("pytorch",), (), str(file))
    file = write_bundle("other", "{name: own, priority: -5, plugins: [a, b], models: [org/a, 'org/b:fast']}")
    assert read_bundle(file) == Bundle("own", -5, ("a", "b"), ("org/a", "org/b:fast"), str(file))


def test_bundles_are_listed_by_priority_then_by_name(write_bundle: Callable[[str, str], Path], tmp_path: Path) -> None:
    write_bundle("b", "plugins: [x]")
    write_bundle("a", "plugins: [x]")
    write_bundle("last", "{plugins: [x], priority: 101}")
    write_bundle("first", "{plugins: [x], priority: 9}")
    (tmp_path / "no-bundle").mkdir()
    assert [bundle.name for bundle in read_bundles(tmp_path)] == ["first", "a", "b", "last"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "{plugins: [a], colour: red}",
            ["`colour` is no field here", "Known: name, priority, default, python, plugins"],
        ),
        ("{plugins: [a], adapters: [pkg.mod]}", ["`adapters` is derived from `plugins`", "leave it out"]),
        ("{plugins: [a], engine: candle}", ["`engine` is derived from `plugins`"]),
        ("{plugins: [a], priority: high}", ["priority", "'high'", "integer"]),
        ("{plugins: [a], priority: true}", ["priority", "True", "integer"]),
        ("{plugins: a}", ["plugins", "'a'", "list"]),
        ("{plugins: ['']}", ["plugins.0", "''"]),
        ("{plugins: [a], name: 'a b'}", ["name", "'a b'", "pattern"]),
        ("{models: [org/../a]}", ["models.0", "'org/../a'", "no '..'"]),
        ("{}", ["`plugins` and `models` are empty", "name a plugin or a model"]),
        ("", ["map of fields", "NoneType"]),
        ("plugins: [a", ["not valid YAML", "line 1"]),
        ("{plugins: [a], plugins: [b]}", ["'plugins' is given twice"]),
    ],
)
def test_a_wrong_bundle_names_file_field_value_and_remedy(
    write_bundle: Callable[[str, str], Path], text: str, said: list[str]
) -> None:
    file = write_bundle("wrong", text)
    with pytest.raises(BundleError) as raised:
        read_bundle(file)
    for part in [f"{file}:1: ", *said]:
        assert part in str(raised.value)


def test_every_wrong_bundle_of_a_folder_is_named_at_once(
    write_bundle: Callable[[str, str], Path], tmp_path: Path
) -> None:
    first = write_bundle("a", "{plugins: [x], name: same}")
    second = write_bundle("b", "{plugins: [x], name: same}")
    third = write_bundle("c", "{}")
    with pytest.raises(BundleError) as raised:
        read_bundles(tmp_path)
    lines = str(raised.value).splitlines()
    assert [line.partition(":")[0] for line in lines] == [str(second), str(third)]
    assert f"'same' is the name of {first} too" in lines[0]


WHOLE = """\
name: whole
default: true
plugins:
  - pytorch
  - {distribution: acme-plugin, range: ">=1,<2", platforms: [cuda], extras: [fast]}
models:
  - org/a
  - {id: org/b, revision: 0123456789abcdef0123456789abcdef01234567, bake: true}
settings:
  SIE_MAX_BATCH_REQUESTS: 32
overrides:
  - {package: numpy, spec: ">=2", reason: acme-plugin says <2 and its tests pass with 2, until: 2027-01-31}
environments:
  sglang: {requires: [sglang==0.5.23]}
platforms:
  cuda: {index: "https://wheels.acme.example/simple", torch: 2.13.0}
"""


def test_a_whole_bundle_is_read_and_its_short_forms_become_long_ones(
    write_bundle: Callable[[str, str], Path],
) -> None:
    file = write_bundle("whole", WHOLE)
    whole = read_whole(file)
    assert [plugin.distribution for plugin in whole.plugins] == ["pytorch", "acme-plugin"]
    assert [(model.id, model.bake) for model in whole.models] == [("org/a", False), ("org/b", True)]
    assert whole.overrides[0].until == date(2027, 1, 31)
    assert whole.platforms["cuda"].torch == "2.13.0"
    assert read_bundle(file) == Bundle("whole", 100, ("pytorch", "acme-plugin"), ("org/a", "org/b"), str(file), True)


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ("acme-plugin,", "../acme,", 5, ["'../acme' names no plugin"]),
        ('">=1,<2"', '"newest"', 5, ["no range of versions", ">=1.2,<2"]),
        ("[cuda]", "[tpu]", 5, ["'cpu' or 'cuda'"]),
        ("0123456789abcdef0123456789abcdef01234567", "main", 8, ["'main' is no pin", "40 hex digits"]),
        ("  SIE_MAX_BATCH_REQUESTS", "  MAX_BATCH_REQUESTS", 10, ["settings.MAX_BATCH_REQUESTS"]),
        ("reason: acme-plugin says <2 and its tests pass with 2,", "", 12, ["needs a `reason`"]),
        ("until: 2027-01-31", "until: later", 12, ["until", "'later'", "date"]),
        ("sglang==0.5.23", "sglang @ https://acme.example/sglang.whl", 14, ["names a URL"]),
        ("  sglang:", "  ../sglang:", 14, ["environments.../sglang"]),
        ("wheels.acme", "user:secret@wheels.acme", 16, ["user or password", "netrc"]),
        ("torch: 2.13.0", "base: 'python:3.11'", 16, ["is no image by digest"]),
        ("torch: 2.13.0", "torch: newest", 16, ["'newest' is no version"]),
        ("default: true", 'python: "3.9"', 2, ["'3.9' is no version of Python that SIE runs on"]),
    ],
)
def test_a_wrong_field_deep_in_a_bundle_is_named_with_its_line(
    write_bundle: Callable[[str, str], Path], old: str, new: str, line: int, said: list[str]
) -> None:
    assert old in WHOLE
    file = write_bundle("wrong", WHOLE.replace(old, new))
    with pytest.raises(BundleError) as raised:
        read_whole(file)
    for part in [f"{file}:{line}: ", *said]:
        assert part in str(raised.value)


def test_one_bundle_of_a_folder_is_the_default(write_bundle: Callable[[str, str], Path], tmp_path: Path) -> None:
    write_bundle("a", "{plugins: [x], default: true}")
    second = write_bundle("b", "{plugins: [x], default: true}")
    with pytest.raises(BundleError, match=rf"{second}: default: another bundle"):
        read_bundles(tmp_path)


@pytest.mark.parametrize("folder", ["gone", "."])
def test_a_folder_without_bundles_is_an_error_that_names_the_setting(tmp_path: Path, folder: str) -> None:
    with pytest.raises(BundleError, match=r"SIE_BUNDLES_DIR=.*(No such file|holds no bundle)"):
        read_bundles(tmp_path / folder)


@pytest.mark.timeout(20)
def test_a_bundle_that_is_no_file_is_refused_unread(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/bundle.yaml").symlink_to("/dev/zero")
    with pytest.raises(BundleError, match=r"a/bundle\.yaml: cannot be read: it is no regular file"):
        read_bundles(tmp_path)
