"""`docs/extend/architecture.md` names functions that exist, and stays short enough to be read."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/extend/architecture.md").read_text(encoding="utf-8")
STEPS = re.findall(r"((?:\w+/)*\w+\.py):([\w.]+)", PAGE)
PICTURE = "## One embedding request"
LISTS = ("## The way of a LoRA name", "## A load that needs room")
MOST_WORDS = 1400
MOST_FILES_OF_A_LOAD = 9


def section(title: str) -> str:
    return PAGE.partition(f"{title}\n")[2].partition("\n## ")[0]


def steps(title: str) -> list[str]:
    """The numbered steps of a section, each with its continuation lines."""
    return re.findall(r"^\d+\. .*(?:\n {3,}.*)*", section(title), re.MULTILINE)


@cache
def defined(file: str) -> set[str]:
    """The functions and classes of a file, methods as `Class.method`."""
    names: set[str] = set()
    for node in ast.parse((ROOT / "sie_core" / file).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            methods = [each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
            names |= {f"{node.name}.{each.name}" for each in methods}
    return names


@pytest.mark.parametrize(("file", "name"), sorted(set(STEPS)))
def test_a_function_that_the_page_names_exists(file, name):
    assert (ROOT / "sie_core" / file).is_file(), f"{file} is not there"
    assert name in defined(file), f"{file} has {sorted(defined(file))}"


@pytest.mark.parametrize("title", LISTS)
def test_each_step_of_a_way_names_a_function(title):
    assert len(steps(title)) > 5
    assert [step for step in steps(title) if not re.search(r"`[\w/]+\.py:[\w.]+`", step)] == []


def test_each_step_of_a_request_names_a_function_and_every_thread_is_there():
    picture = section(PICTURE).split("```")[1]
    drawn = [line for line in picture.splitlines() if "│" in line]
    assert len(drawn) > 15
    assert [line for line in drawn if not re.search(r" {2,}[\w/]+\.py:[\w.]+$", line)] == []
    threads = re.findall(r"^[A-Z][A-Z ]+[A-Z]\b", picture, re.MULTILINE)
    assert threads == ["EVENT LOOP", "CPU THREAD", "DEVICE THREAD", "CPU THREAD", "EVENT LOOP"]


def test_a_load_that_needs_room_touches_at_most_nine_files_of_the_engine():
    files = set(re.findall(r"`(engine/[\w/]+\.py):", section(LISTS[1])))
    assert 0 < len(files) <= MOST_FILES_OF_A_LOAD, files


def test_the_page_is_short_and_its_glossary_has_ten_lines():
    assert len([word for word in PAGE.split() if re.search(r"\w", word)]) <= MOST_WORDS
    assert len(re.findall(r"^- \*\*", section("## Glossary"), re.MULTILINE)) == 10


@pytest.mark.parametrize("page", ["architecture.md", "decisions.md"])
def test_every_file_and_page_that_it_names_is_there(page):
    text = (ROOT / "docs/extend" / page).read_text(encoding="utf-8")
    pages = re.findall(r"\]\(([\w./-]+\.md)\)", text)
    folders = re.findall(r"`([\w/-]+)/`", text)
    assert [each for each in pages if not (ROOT / "docs/extend" / each).is_file()] == []
    assert [each for each in folders if not (ROOT / "sie_core" / each).is_dir() and not (ROOT / each).is_dir()] == []
