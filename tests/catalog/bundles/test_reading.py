"""Bundle files: those that ship, what loads, and what an error names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sie_core.catalog.bundles.reading import Bundle, BundleError, read_bundle, read_bundles, shipped_bundles


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
    assert [bundle.name for bundle in read_bundles(shipped_bundles())] == ["gliner", "default", "sglang"]


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
        ("{plugins: [a], colour: red}", ["`colour` is no field here", "Known: name, priority, plugins, models"]),
        ("{plugins: [a], adapters: [pkg.mod]}", ["`adapters` is derived from `plugins`", "leave it out"]),
        ("{plugins: [a], engine: candle}", ["`engine` is derived from `plugins`"]),
        ("{plugins: [a], priority: high}", ["priority", "'high'", "integer"]),
        ("{plugins: [a], priority: true}", ["priority", "True", "integer"]),
        ("{plugins: a}", ["plugins", "'a'", "list"]),
        ("{plugins: ['']}", ["plugins.0", "''"]),
        ("{plugins: [a], name: 'a b'}", ["name", "'a b'", "pattern"]),
        ("{models: [org/../a]}", ["`models.0` is 'org/../a'", "no '..'"]),
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
    for part in [str(file), *said]:
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
