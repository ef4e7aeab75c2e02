"""What a plugin may import: the table in docs/writing-a-plugin.md, and the import contracts that hold it."""

from __future__ import annotations

import configparser
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
LISTS = ("importlinter:contract:plugins", "importlinter:contract:plugins-of-pytorch")

PUBLIC = """
from sie_core.contracts import Adapter, device_errors
from sie_core.hookspecs import hookimpl
from sie_pytorch.runners import Runner
from sie_sdk.errors import error_spec
"""
DEEP = {
    "sie_core.contracts.adapter": "from sie_core.contracts.adapter import Adapter",
    "sie_core.engine.engine": "import sie_core.engine.engine",
    "sie_core.memory": "def load():\n    from sie_core import memory",
    "sie_pytorch.tokenizer": "from sie_pytorch import tokenizer",
    "sie_sdk._calls.protocol": "from sie_sdk._calls.protocol import *",
}


def contracts() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(ROOT / ".importlinter", encoding="utf-8")
    return parser


def test_the_page_lists_exactly_the_modules_that_the_import_contracts_allow():
    page = (ROOT / "docs/writing-a-plugin.md").read_text(encoding="utf-8")
    section = page.partition("## What a plugin may import\n")[2].partition("\n## ")[0]
    allowed = [line for name in LISTS for line in contracts()[name]["ignore_imports"].split("\n") if line]
    assert set(re.findall(r"^\| `([\w.]+)` \|", section, re.MULTILINE)) == {
        line.removeprefix("** -> ") for line in allowed
    }


def test_every_plugin_of_this_project_is_held_to_the_list():
    ours = {folder.name for folder in ROOT.glob("plugins/*/sie_*") if (folder / "__init__.py").exists()}
    core, pytorch = (set(contracts()[name]["source_modules"].split()) for name in LISTS)
    assert core == ours
    assert pytorch == ours - {"sie_pytorch"}


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


def broken(folder: Path) -> str:
    """Run the two contracts in `folder`, which holds a package beside ours; return what they report."""
    linter = Path(sys.executable).with_name("lint-imports")
    names = [part for name in LISTS for part in ("--contract", name.rpartition(":")[2])]
    done = subprocess.run(
        [linter, "--config", "contracts.ini", "--no-cache", *names],
        cwd=folder,
        env=os.environ | {"COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout
