"""`sie-integrations` in the frameworks themselves, against a live server: their own tests, and those of `inside/`."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clients.conftest import ClientEnvironment, client_environment
from tests.integrations.cases import ROOT, environment, run_cases

README = ROOT / "sdk/integrations/README.md"
FRAMEWORKS = {
    "langchain": "langchain_core",
    "langchain_qdrant": "langchain_qdrant",
    "llamaindex": "llama_index",
    "haystack": "haystack",
    "chroma": "chromadb",
    "lancedb": "lancedb",
}
SHARED = {"sie_integrations", "sie_sdk", "numpy", "pydantic"}
pytestmark = [pytest.mark.client, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def frameworks() -> ClientEnvironment:
    return client_environment("integrations")


@pytest.mark.slow
def test_the_frameworks_do_what_they_promise(frameworks, minilm_server, tmp_path) -> None:
    run_cases(Path(__file__).parent / "inside", frameworks, minilm_server, tmp_path)


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
