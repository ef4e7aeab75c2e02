"""The pages on score, extract and the routes of other APIs: every request answers what is printed below it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs/use"
PAGE, OTHER = (DOCS / "operations.md").read_text(), (DOCS / "other-apis.md").read_text()
ADDRESS = "http://127.0.0.1:8080"
PAIR = re.compile(r"```(sh|python)\n(.*?)```\n+```(?:json|text)\n(.*?)```", re.DOTALL)
PAIRS = [*PAIR.findall(PAGE), *PAIR.findall(OTHER)]


@pytest.mark.parametrize(("language", "asked", "answer"), PAIRS, ids=lambda part: part.split("\n")[0][:40])
def test_every_request_answers_what_the_page_prints(fake_server, language, asked, answer):
    assert ADDRESS in asked
    here = asked.replace(ADDRESS, fake_server)
    command = ["bash", "-ec", here] if language == "sh" else [sys.executable, "-c", here]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    pattern = ".*?".join(map(re.escape, answer.strip().split("...")))
    assert re.fullmatch(pattern, run.stdout.strip()), run.stdout


def test_the_first_request_of_the_page_works_on_a_fresh_server(start_server):
    _, asked, answer = PAIR.findall(PAGE)[0]
    test_every_request_answers_what_the_page_prints(start_server({"SIE_PLUGINS": "fake"}).url, "sh", asked, answer)


def test_every_snippet_has_its_answer():
    assert len(PAIRS) == len(re.findall(r"```(?:sh|python)\n", PAGE + OTHER)) == 10


def test_the_page_names_every_field_of_an_answer():
    from sie_core.api.native import extract_schema

    for name in ("EntityOutput", "RelationOutput", "ClassificationOutput", "ObjectOutput", "ExtractedItem"):
        for field in getattr(extract_schema, name).model_fields:
            assert f"`{field}`" in PAGE, f"{field} of {name} is not on the page"
