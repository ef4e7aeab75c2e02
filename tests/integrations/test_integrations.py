"""`sie-integrations` in the frameworks themselves, against a live server: their own tests, and those of `inside/`."""

from __future__ import annotations

import ast
import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clients.conftest import ClientEnvironment, client_environment

ROOT = Path(__file__).parents[2]
README = ROOT / "sdk/integrations/README.md"
INSIDE = Path(__file__).parent / "inside"
FRAMEWORKS = {
    "langchain": "langchain_core",
    "langchain_qdrant": "langchain_qdrant",
    "llamaindex": "llama_index",
    "haystack": "haystack",
    "chroma": "chromadb",
    "lancedb": "lancedb",
}
SHARED = {"sie_integrations", "sie_sdk", "numpy", "pydantic"}
MINILM = "sentence-transformers/all-MiniLM-L6-v2"
WORDS = (
    "river bridge winter garden engine copper letter window market forest doctor ticket camera island shadow planet "
    "butter violin saddle rocket pepper candle mirror basket tunnel desert parrot hammer castle blanket pocket thunder "
    "ladder orange kitchen soldier library mountain elephant umbrella diamond whistle teacher airport history balloon"
)

pytestmark = [pytest.mark.client, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def frameworks() -> ClientEnvironment:
    return client_environment("integrations")


def planted() -> dict[str, list[str]]:
    """A thousand documents of five words, and queries of four words of some of them."""
    rng = random.Random(7)
    documents = list(dict.fromkeys(" ".join(rng.sample(WORDS.split(), 5)) for _ in range(1000)))
    answers = rng.sample(documents, 25)
    queries = [" ".join(answer.split()[:4]) for answer in answers]
    return {"documents": documents, "answers": answers, "queries": queries}


def environment(**more: str) -> dict[str, str]:
    """The variables of a framework's process; it may keep what it compiles, which takes most of its start."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("SIE_", "PYTEST_", "PYTHON"))}
    paths = os.pathsep.join(str(ROOT / each) for each in ("sdk/python", "sdk/integrations"))
    return {**own, "PYTHONPATH": paths, "ANONYMIZED_TELEMETRY": "False", "HAYSTACK_TELEMETRY_ENABLED": "False", **more}


@pytest.mark.slow
def test_the_frameworks_do_what_they_promise(frameworks, minilm_server, tmp_path) -> None:
    command = [str(frameworks.python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "--import-mode=importlib"]
    options = ["-c", "/dev/null", "--rootdir", str(tmp_path), "--confcutdir", str(INSIDE), "-o", "asyncio_mode=auto"]
    done = subprocess.run(
        [*command, *options, "-o", "python_files=*_cases.py", str(INSIDE)],
        env=environment(URL=minilm_server, DENSE=MINILM, PLANTED=json.dumps(planted())),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_module_imports_its_own_framework_alone() -> None:
    for module, framework in FRAMEWORKS.items():
        tree = ast.parse((ROOT / f"sdk/integrations/sie_integrations/{module}.py").read_text())
        named = {each.module for each in ast.walk(tree) if isinstance(each, ast.ImportFrom) and each.module}
        named |= {alias.name for each in ast.walk(tree) if isinstance(each, ast.Import) for alias in each.names}
        foreign = {name.split(".")[0] for name in named} - sys.stdlib_module_names - SHARED
        assert foreign == {framework}, module


NOTES = {"bridge.txt": "the old bridge fell", "fox.txt": "a red fox", "ada.txt": "person=Ada lives in place=Rome"}
STAND_INS = {
    "http://127.0.0.1:8080": "",
    "prithivida/Splade_PP_en_v2": "sie-fake/embedder",
    "cross-encoder/ms-marco-MiniLM-L6-v2": "sie-fake/reranker",
    "urchade/gliner_multi-v2.1": "sie-fake/extractor",
}
"""Of addresses and models of the README: the weights are not here, fakes answer in their place."""


def test_the_examples_of_the_readme_run(frameworks, minilm_server, tmp_path) -> None:
    (tmp_path / "notes").mkdir()
    for name, text in NOTES.items():
        (tmp_path / "notes" / name).write_text(text)
    search, table = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    printed = []
    for example in (search, table):
        for written, here in STAND_INS.items():
            example = example.replace(written, here or minilm_server)
        done = subprocess.run(
            [str(frameworks.python), "-c", example],
            env=environment(),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=200,
        )
        assert done.returncode == 0, done.stderr
        printed.append(done.stdout.splitlines())
    assert printed[0][0].startswith("bridge.txt ")
    assert len(printed[0]) == 3
    rows = [row.split(",")[:3] for row in (tmp_path / "entities.csv").read_text().splitlines()]
    assert rows == [["file", "label", "text"], ["ada.txt", "person", "Ada"], ["ada.txt", "place", "Rome"]]
