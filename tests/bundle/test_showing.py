"""`sie bundle init`, `list` and `show`: a bundle of a third party from its first line to what an upgrade changes."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from sie_bundle.bundles.hashes import bundle_config_hash
from sie_bundle.bundles.placement import Placement
from sie_bundle.bundles.reading import read_bundles, read_whole, shipped_bundles
from sie_bundle.locks.lock import Lock, LockedPackage, LockedWheel, write_lock
from sie_bundle.locks.tree import draw_tree

from sie_core.catalog import build_catalog
from sie_core.defaults import BUILTINS
from sie_core.plugins import discover
from sie_core.settings import Settings
from tests.bundle.conftest import needs_uv
from tests.bundle.wheels import make_wheel

Run = Callable[..., Result]
Write = Callable[[str], Path]


def package(name: str, *needs: str, size: int = 1_000_000, version: str = "1") -> LockedPackage:
    file = f"{name}-{version}-py3-none-any.whl"
    return LockedPackage(name, version, LockedWheel(file, size, "0" * 64, f"https://registry.example/{file}"), needs)


def lock_of(*packages: LockedPackage) -> Lock:
    return Lock("acme", "cpu", "3.11", packages)


def test_a_tree_has_each_package_once_the_largest_first_and_ends_where_packages_need_one_another() -> None:
    ring = [package("hen", "egg"), package("egg", "hen")]
    big, small = package("big", "deep", size=9_000_000), package("small", "deep")
    lock = lock_of(package("top", "small", "big"), small, big, package("deep"), *ring)
    assert list(draw_tree(lock)) == [
        "top 1 (1.0 MB)",
        "  big 1 (9.0 MB)",
        "    deep 1 (1.0 MB)",
        "  small 1 (1.0 MB)",
        "egg 1 (1.0 MB)",
        "  hen 1 (1.0 MB)",
    ]


def test_a_chain_of_hundreds_of_packages_is_drawn() -> None:
    chain = [package(f"p{number:03}", f"p{number + 1:03}") for number in range(500)]
    assert len(list(draw_tree(lock_of(*chain, package("p500"))))) == 501


@needs_uv
def test_a_third_partys_bundle_goes_from_its_first_line_to_a_lock_and_its_upgrade_is_shown(
    sie_bundle: Run, tmp_path: Path, ours: Path, others: Path
) -> None:
    folder, wheels = tmp_path / "mine", ["--find-links", others, "--no-registry"]
    module, named = {"mine_plugin.py": "INTERFACES = ()\n"}, {"mine": "mine_plugin"}
    make_wheel(ours, "mine-plugin", "2.1.0", ["sie-core", "numbers<5.24"], plugins=named, modules=module)
    assert sie_bundle("init", folder, "--plugin", "mine-plugin").exit_code == 0
    assert [each.distribution for each in read_whole(folder / "bundle.yaml").plugins] == ["mine-plugin"]
    done = sie_bundle("check", folder, "--wheels", ours, *wheels)
    assert done.exit_code == 0, done.output
    done = sie_bundle("lock", folder, "--wheels", ours, *wheels)
    assert done.exit_code == 0, done.output
    shown = sie_bundle("show", folder).output.splitlines()
    tree = shown[shown.index(f"{folder}/pylock.cpu.toml: 4 packages, 0.0 MB") :]
    assert tree[1:] == [
        "  mine-plugin 2.1.0 (0.0 MB)",
        "    sie-core 1.0.0 (0.0 MB)",
        "      sie-sdk 1.0.0 (0.0 MB)",
        "    numbers 5.23.0 (0.0 MB)",
    ]
    old = tmp_path / "old"
    shutil.copytree(folder, old)
    assert sie_bundle("show", folder, "--against", old).output.splitlines()[-1] == "  nothing has changed"
    (ours / "mine_plugin-2.1.0-py3-none-any.whl").unlink()
    make_wheel(ours, "mine-plugin", "2.2.0", ["sie-core", "weights"], plugins={"mine": "mine_plugin"})
    assert sie_bundle("lock", folder, "--wheels", ours, *wheels).exit_code == 0
    for against in (old, old / "pylock.cpu.toml"):
        upgraded, gone, come, in_all = sie_bundle("show", folder, "--against", against).output.splitlines()[-4:]
        assert upgraded.startswith("  ~ mine-plugin 2.1.0 -> 2.2.0")
        assert (gone, come) == ("  - numbers 5.23.0 (0.0 MB)", "  + weights 0.1 (0.0 MB)")
        assert in_all.startswith("  in all 0.0 MB -> 0.0 MB")


def test_the_hash_that_is_shown_is_that_of_the_configs_which_the_bundle_serves(sie_bundle: Run) -> None:
    plugins = discover(Settings(plugins_blocked=("fake",)), BUILTINS)
    placement = Placement(read_bundles(shipped_bundles()), plugins)
    catalog = build_catalog(Settings(), plugins)
    ours = [each for each in catalog.configs.values() if "gliner" in str(placement.place(each))]
    assert len(ours) < len(catalog.configs)
    shown = sie_bundle("show", "gliner").output
    assert f"serves {len(ours)} models known here; config hash {bundle_config_hash(ours)}" in shown


def test_bundles_are_listed_and_a_broken_one_is_told_beside_them(
    sie_bundle: Run, bundle: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle("{plugins: [a, b], default: true, priority: 4}")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/bundle.yaml").write_text("{}")
    monkeypatch.setenv("SIE_BUNDLES_DIR", str(tmp_path))
    done = sie_bundle("list")
    assert done.exit_code == 0
    assert "acme (default)  priority 4  cpu\n    a, b\n" in done.output
    assert "broken/bundle.yaml:1: `plugins` and `models` are empty" in done.output


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("a b", ["--plugin", "x"], "is no name of a bundle"),
        ("new", ["--plugin", "../x"], "'../x' names no plugin"),
        ("new", ["--plugin", "x", "--model", "org/../x"], "no '..'"),
        ("new", ["--plugin", 'x"]\nname: other'], "names no plugin"),
    ],
)
def test_a_bundle_that_would_be_wrong_is_not_begun(
    sie_bundle: Run, tmp_path: Path, name: str, options: list[str], said: str
) -> None:
    done = sie_bundle("init", tmp_path / name, *options)
    assert done.exit_code == 1
    assert said in done.output
    assert not (tmp_path / name / "bundle.yaml").exists()


def test_a_bundle_that_is_there_stays(sie_bundle: Run, bundle: Write) -> None:
    folder = bundle("plugins: [a]")
    done = sie_bundle("init", folder, "--plugin", "b")
    assert (done.exit_code, "exists already" in done.output) == (1, True)
    assert (folder / "bundle.yaml").read_text() == "plugins: [a]"


def test_an_older_lock_of_another_platform_is_refused(sie_bundle: Run, bundle: Write) -> None:
    folder = bundle("plugins: [a]")
    (folder / "pylock.cpu.toml").write_text(write_lock(lock_of(package("a"))))
    other = folder / "old.toml"
    other.write_text(write_lock(Lock("acme", "cuda", "3.11", (package("a"),))))
    done = sie_bundle("show", folder, "--against", other)
    assert done.exit_code == 1
    assert "is a pylock.cuda.toml, not a pylock.cpu.toml" in done.output


def test_without_a_name_the_default_of_the_folder_is_meant(
    sie_bundle: Run, bundle: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIE_BUNDLES_DIR", str(tmp_path))
    bundle("plugins: [a]")
    done = sie_bundle("show")
    assert (done.exit_code, "is the default: name one" in done.output) == (1, True)
    bundle("{plugins: [a], default: true}")
    assert sie_bundle("show").output.startswith("acme: priority 100")
