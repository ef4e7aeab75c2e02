"""What a page says that can be checked: tables are tables, links lead to headings, names are those of the code."""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache
from itertools import groupby
from pathlib import Path

import pytest
import yaml
from sie_cluster.settings import ClusterSettings

from sie_core.cli import COMMANDS
from sie_core.commands import find_commands
from sie_core.plugins import discover
from sie_core.settings import ECOSYSTEM, Settings, variables_of
from tests.docs.test_generated import PAGES, ROOT

SEPARATOR = r"\|(\s*:?-+:?\s*\|)+"
CELL_END = r"(?<!\\)\|"
"""A bar ends a cell in code spans too, unless a backslash stands before it."""
BUILDS = {"SIE_CPU_KERNELS"}
"""Read while a wheel is built, by no program."""
MISSPELT = {"SIE_MAX_BATCH_REQUEST"}
"""What an error that a page prints refuses."""
NOW = [page for page in PAGES if page.name != "CHANGELOG.md"]
"""The pages that tell of this release alone."""


def prose(page: Path) -> str:
    """A page without its code blocks, line by line as it was."""
    return re.sub(
        r"^ *```.*?^ *```$", lambda found: "\n" * found[0].count("\n"), page.read_text(), flags=re.MULTILINE | re.DOTALL
    )


def blocks(language: str) -> list[tuple[str, str]]:
    """The code blocks of a language, each with its page."""
    pattern = rf"^```{language}\n(.*?)^```$"
    return [
        (page.name, code) for page in PAGES for code in re.findall(pattern, page.read_text(), re.MULTILINE | re.DOTALL)
    ]


@cache
def headings(page: Path) -> set[str]:
    """What the headings of a page are called in links."""
    names = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", name.lower()).replace(" ", "-") for name in names}


def test_a_line_that_begins_with_a_bar_is_a_row_of_a_table():
    for page in PAGES:
        lines = list(enumerate(prose(page).splitlines(), 1))
        for is_table, rows in groupby(lines, lambda line: line[1].lstrip().startswith("|")):
            if not is_table:
                continue
            (number, header), *rest = rows
            where = f"{page.relative_to(ROOT)}:{number}"
            assert len(rest) > 1, f"{where} has no row"
            assert re.fullmatch(SEPARATOR, rest[0][1].strip()), f"{where} has no line |---| below it"
            for at, row in rest:
                cells = [len(re.findall(CELL_END, line)) for line in (header, row)]
                assert cells[0] == cells[1], f"{where}: line {at} has other cells than its header: {row}"


def test_a_link_to_a_part_of_a_page_names_a_heading_of_it():
    for page in PAGES:
        for target, part in re.findall(r"\]\((?!https?://|mailto:)([^)#\s]*)#([^)\s]+)\)", prose(page)):
            asked = (page.parent / target).resolve() if target else page
            assert part in headings(asked), f"{page.name} links to {target}#{part}"


def test_every_variable_that_a_page_names_is_a_setting():
    known = {
        *variables_of(ClusterSettings),
        *ECOSYSTEM,
        *MISSPELT,
        *BUILDS,
        *(each.variable for each in discover(Settings()).settings),
    }
    for page in NOW:
        named = set(re.findall(r"\bSIE_[A-Z0-9_]*[A-Z0-9]\b(?!\*)", page.read_text()))
        unknown = {name for name in named - known if not name.startswith("SIE_TEST_")}
        assert unknown == set(), f"{page.name} names {unknown}"


def test_every_command_that_a_page_names_is_there():
    rules = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in NOW:
        said = re.findall(
            r"(?:^|`|&& )(?:\.(?:light|venv)/bin/)?(make|sie) ([a-z][\w-]*)", page.read_text(), re.MULTILINE
        )
        missing = [each for each in said if each[1] not in (rules if each[0] == "make" else find_commands(COMMANDS))]
        assert missing == [], f"{page.name} names {missing}"


@pytest.mark.parametrize(
    ("language", "read"), [("python", ast.parse), ("toml", tomllib.loads), ("yaml", yaml.safe_load)]
)
def test_every_code_block_is_of_its_language(language, read):
    assert blocks(language)
    for page, code in blocks(language):
        try:
            read(code)
        except Exception as error:
            raise AssertionError(f"{page} has a block that is no {language}:\n{code}") from error
