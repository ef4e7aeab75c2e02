"""The docs say what the code does: their tables are made from it."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted({*(ROOT / "docs").glob("**/*.md"), *ROOT.glob("*.md"), *ROOT.glob("*/*/README.md")})


def load_generator():
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_generated_table_is_up_to_date(page):
    text = page.read_text()
    assert load_generator().render(text) == text, "run `make docs`"


def test_the_schema_of_the_charts_values_is_that_of_their_comments():
    (file, text), *others = ((file, text) for file, text in load_generator().made().items() if file.suffix == ".json")
    assert not others
    assert file.read_text() == text, "run `make docs`"


def test_every_table_the_generator_knows_stands_in_the_docs():
    placed = {name for page in PAGES for name in re.findall(r"<!-- generated: ([\w-]+) -->", page.read_text())}
    assert placed == set(load_generator().TABLES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(page):
    for target in re.findall(r"\]\((?!https?://|#|mailto:)([^)#\s]+)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"
