"""The pages are followed command by command, against a server as `make serve` starts it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import MINILM, run_server
from tests.docs.following import Step, follow, matches, steps
from tests.docs.test_generated import ROOT

FOLDERS = ("use", "operate", "extend")
PAGES = [page for folder in FOLDERS for page in sorted((ROOT / "docs" / folder).glob("**/*.md"))]
USE = [page for page in PAGES if page.parent.name == "use"]
PROMISE = re.compile(r"# [^\n]+\n\nAfter this page you can [^.\n]")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("served")
    with run_server(folder, {"SIE_PLUGINS_BLOCKED": "fake"}, ["--preload", MINILM]) as server:
        yield server.url


def followed() -> list[Step]:
    """Every command of the pages on use, and the first of each other page."""
    first = [steps(page)[:1] for page in PAGES if page not in USE]
    return [step for found in (*map(steps, USE), *first) for step in found if step.reason is None]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.mark.parametrize("step", followed(), ids=lambda step: f"{step.page}:{step.line}")
def test_a_command_of_a_page_does_what_the_page_says(
    step: Step, served: str, home: Path, request: pytest.FixtureRequest
) -> None:
    follow(step, request.getfixturevalue("fake_server") if step.unblocked else served, home)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_opens_with_what_its_reader_can_do_and_an_example(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert PROMISE.match(text), "the first sentence does not begin with: After this page you can …"
    opening, _, _ = text.partition("\n## ")
    assert re.search(r"^```\w", opening, re.MULTILINE), "no example stands before the first heading"
    before, _, _ = text.partition("sie-fake/")
    if before != text and page in USE:
        assert "SIE_PLUGINS_BLOCKED=" in before, "a model of sie-fake is named before the line that serves it"
        assert re.search(r"^```\w", before.partition("SIE_PLUGINS_BLOCKED=")[0], re.MULTILINE), "sie-fake comes first"


def test_at_most_ten_files_lie_side_by_side() -> None:
    for folder in (ROOT / "docs", *(each for each in (ROOT / "docs").rglob("*") if each.is_dir())):
        names = [each.name for each in folder.iterdir() if each.is_file()]
        assert len(names) <= 10, f"{folder.name}: {names}"


def test_what_a_page_leaves_open_is_anything_and_the_rest_is_itself() -> None:
    assert matches('{"a":0.84,"b":[1]}\n', '{"a":0.8...,"b":[1]}')
    assert not matches('{"a":0.84,"b":[1]}\n', '{"a":0.8...,"b":[2]}')
