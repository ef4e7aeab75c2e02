"""What a plugin may import: the table in docs/extend/writing-a-plugin.md, and the import contracts that hold it."""

from __future__ import annotations

import ast
import configparser
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from sie_kit.cli.projects import KINDS, make

from sie_core.settings import core_variables
from tests.public.surface import SNAPSHOT, read

ROOT = Path(__file__).parents[2]
LISTS = (
    "importlinter:contract:plugins",
    "importlinter:contract:plugins-of-text",
    "importlinter:contract:plugins-of-pytorch",
)

PUBLIC = """
from sie_core.contracts import Adapter, device_errors
from sie_core.hookspecs import hookimpl
from sie_pytorch.forward import Runner
from sie_sdk.errors import error_spec
"""
DEEP = {
    "sie_core.contracts.family.adapter": "from sie_core.contracts.family.adapter import Adapter",
    "sie_core.engine.engine": "import sie_core.engine.engine",
    "sie_core.memory": "def load():\n    from sie_core import memory",
    "sie_text.recipe.encoders.dense": "from sie_text.recipe.encoders import dense",
    "sie_pytorch.families": "from sie_pytorch import families",
    "sie_sdk._calls.protocol": "from sie_sdk._calls.protocol import *",
}


PROGRAMS = {"sie_bundle", "sie_cluster", "sie_kit"}
"""Packages that bring commands, not parts of an engine: they stand on more of the core."""


def contracts() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(ROOT / ".importlinter", encoding="utf-8")
    return parser


def packages() -> set[str]:
    return {folder.name for folder in ROOT.glob("plugins/*/sie_*") if (folder / "__init__.py").exists()}


def test_the_page_lists_exactly_the_modules_that_the_import_contracts_allow():
    page = (ROOT / "docs/extend/writing-a-plugin.md").read_text(encoding="utf-8")
    section = page.partition("## What a plugin may import\n")[2].partition("\n## ")[0]
    allowed = [line for name in LISTS for line in contracts()[name]["ignore_imports"].split("\n") if line]
    assert set(re.findall(r"^\| `([\w.]+)` \|", section, re.MULTILINE)) == {
        line.removeprefix("** -> ") for line in allowed
    }


def names_used(tree: ast.AST) -> Iterator[str]:
    """List what a source imports from ours, and every attribute and argument that it names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sie_"):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.keyword) and node.arg:
            yield node.arg


def test_every_public_name_that_plugins_outside_use_is_on_a_page_for_authors(tmp_path):
    public = {path.rpartition(".")[2] for path in read(SNAPSHOT)}
    pages = " ".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs/extend").rglob("*.md"))
    settings = {variable.removeprefix("SIE_").lower() for variable in core_variables()}
    told = set(re.findall(r"\w+", pages)) | settings
    sources = [*(ROOT / "tests/plugins/data").glob("outside_*/**/*.py")]
    for kind in KINDS:
        sources += make(f"new-{kind}", kind, tmp_path).rglob("*.py")
    used = {name for source in sources for name in names_used(ast.parse(source.read_text(encoding="utf-8")))}
    assert len(used & public) > 200
    assert not (used & public) - told


def test_every_plugin_of_this_project_is_held_to_the_list():
    ours = packages()
    core, text, pytorch = (set(contracts()[name]["source_modules"].split()) for name in LISTS)
    plugins = ours - PROGRAMS
    assert core == plugins
    assert text == plugins - {"sie_text"}
    assert pytorch == plugins - {"sie_pytorch"}


RUNNERS = "importlinter:contract:runners"
CYCLES = "importlinter:contract:plugins-without-cycles"


def test_runners_stand_on_forward_passes_and_architectures_and_no_plugin_has_a_cycle():
    assert contracts()[RUNNERS]["source_modules"].split() == ["sie_cpu.entry", "sie_cpu.runner", "sie_flash"]
    assert contracts()[RUNNERS]["ignore_imports"].split("\n")[1:] == [
        "** -> sie_pytorch.forward",
        "** -> sie_text.architectures",
    ]
    assert set(contracts()[CYCLES]["ancestors"].split()) == packages()


def test_modules_of_a_folder_that_import_one_another_in_a_circle_break_the_contract(tmp_path):
    package = tmp_path / "sie_stranger"
    (package / "forward").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "forward/__init__.py").touch()
    (package / "forward/runner.py").write_text("def load():\n    from sie_stranger import heads\n")
    (package / "heads.py").write_text("from sie_stranger.forward import runner\n")
    config = contracts()
    config["importlinter"]["root_packages"] += "\nsie_stranger"
    config[CYCLES]["ancestors"] += "\nsie_stranger"
    with (tmp_path / "contracts.ini").open("w") as file:
        config.write(file)

    assert "No cycles are allowed in sie_stranger" in broken(tmp_path, CYCLES)


def test_a_reader_finds_at_most_ten_files_side_by_side_in_a_folder_of_a_plugin():
    folders = [folder for name in packages() for folder in (ROOT / "plugins").glob(f"*/{name}/**/")]
    assert len(folders) > len(packages())
    for folder in folders:
        assert len(list(folder.glob("*.py"))) <= 10, folder
    assert len([each for each in (ROOT / "plugins/sie-pytorch/sie_pytorch").iterdir() if each.name[:2] != "__"]) <= 9


def test_a_plugin_that_imports_anything_else_breaks_the_contract(tmp_path):
    package = tmp_path / "sie_stranger"
    package.mkdir()
    (package / "__init__.py").write_text(PUBLIC)
    for number, code in enumerate(DEEP.values()):
        (package / f"deep{number}.py").write_text(code)
    config = contracts()
    for section in ("importlinter", *LISTS):
        key = "root_packages" if section == "importlinter" else "source_modules"
        config[section][key] += "\nsie_stranger"
    with (tmp_path / "contracts.ini").open("w") as file:
        config.write(file)

    told = broken(tmp_path)

    assert set(re.findall(r"sie_stranger(?:\.\w+)? -> ([\w.]+)", told)) == set(DEEP), told


def broken(folder: Path, *lists: str) -> str:
    """Run these contracts in `folder`, which holds a package beside ours; return what they report."""
    linter = Path(sys.executable).with_name("lint-imports")
    names = [part for name in lists or LISTS for part in ("--contract", name.rpartition(":")[2])]
    done = subprocess.run(
        [linter, "--config", "contracts.ini", "--no-cache", *names],
        cwd=folder,
        env=os.environ | {"COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout
