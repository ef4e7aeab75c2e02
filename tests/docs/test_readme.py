"""The README's snippets run as written against a server started as written."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parents[2] / "README.md").read_text()
ADDRESS = "http://127.0.0.1:8080"


def snippets(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def answer(snippet, url):
    assert ADDRESS in snippet
    command = ["bash", "-ec", snippet.replace(ADDRESS, url)]
    return json.loads(subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout)


RANKING = ("/v1/score/", "/rerank")


def test_the_curls_that_rank_put_the_fox_first(minilm_server):
    scores, ranks = (answer(s, minilm_server) for s in snippets("sh") if any(path in s for path in RANKING))
    assert [entry["item_id"] for entry in scores["scores"]] == ["item-1", "item-0"]
    assert [entry["index"] for entry in ranks] == [1, 0]


@pytest.mark.parametrize(
    "snippet", [s for s in snippets("sh") if "curl" in s and not any(path in s for path in RANKING)]
)
def test_every_other_curl_prints_vectors(minilm_server, snippet):
    body = answer(snippet, minilm_server)
    vectors = [item["embedding"] for item in body["data"]] if "data" in body else [
        item["dense"]["values"] for item in body["items"]
    ]  # fmt: skip
    assert vectors
    assert all(len(vector) == 384 and any(vector) for vector in vectors)


def test_the_python_snippet_prints_vectors(minilm_server):
    (snippet,) = snippets("python")
    assert ADDRESS in snippet
    run = subprocess.run(
        [sys.executable, "-c", snippet.replace(ADDRESS, minilm_server)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    first, second = run.stdout.splitlines()
    assert first.startswith("(384,) [")
    assert second == "2 float16"


def test_the_two_doors_stand_first():
    first = snippets("sh")[0].splitlines()
    assert [line.split()[:2] for line in first] == [["make", "serve"], ["make", "test"]]
