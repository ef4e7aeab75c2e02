"""A family on ONNX Runtime written outside the tree: tokenizer, options and heads of sie-text, and no torch."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray
from sentence_transformers.sentence_transformer import modules as st
from sie_sdk import SIEClient
from sie_text.options import POOLING_NAMES
from transformers import AutoModelForMaskedLM

from tests.plugins.outside import DATA, environment, run, server
from tests.pytorch import encoders
from tests.pytorch.heads.bge_m3 import save_bge_m3
from tests.pytorch.heads.colbert import EXPANSION, write_colbert
from tests.pytorch.heads.splade import write_splade
from tests.pytorch.models import HIDDEN, randomise, write_checkpoint

BOUND = 1e-5
"""Largest difference from sie-pytorch, in standard deviations of its numbers where those are above one."""
TEXTS = ["the search engine ranks every document by its embedding", "fox", "A query is short. A document is not, " * 9]
EXPORT = """
import sys, torch
from transformers import AutoModel

class States(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask):
        return self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state

names = ["input_ids", "attention_mask"]
axes = {name: {0: "batch", 1: "tokens"} for name in (*names, "last_hidden_state")}
for folder in sys.argv[1:]:
    model = States(AutoModel.from_pretrained(folder, attn_implementation="eager")).eval()
    example = torch.arange(5, 19).reshape(2, 7), torch.ones((2, 7), dtype=torch.int64)
    example[1][0, 4:] = 0
    torch.onnx.export(model, example, f"{folder}/model.onnx", input_names=names, output_names=["last_hidden_state"],
                      dynamic_axes=axes, opset_version=17, dynamo=False)
"""
HIDE = """
import sys
from importlib.machinery import PathFinder

class Lean(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "transformers"):
            return None
        return super().find_spec(name, path, target)

sys.meta_path[:] = [Lean if each is PathFinder else each for each in sys.meta_path]
"""
"""Run at the start of every process: it finds neither torch nor transformers, as if they were not installed."""


@pytest.fixture(scope="module")
def models(onnx_runtime: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an encoder of each kind, and its graph beside its weights."""
    folder = tmp_path_factory.mktemp("models")
    base = write_checkpoint("bert", tmp_path_factory.mktemp("bert"))
    masked = write_checkpoint("bert", tmp_path_factory.mktemp("masked"), loader=AutoModelForMaskedLM)
    encoders.write_encoder(base, folder / "pooled", st.Pooling(HIDDEN, "mean"), st.Normalize(), length=50)
    layers = st.Pooling(HIDDEN, ("cls", "max")), st.LayerNorm(2 * HIDDEN), st.Dense(2 * HIDDEN, 24), st.Normalize()
    for number, layer in enumerate(layers):
        randomise(layer, number)
    prompts = {"query": "find: ", "document": "passage: "}
    encoders.write_encoder(base, folder / "layers", *layers, truncate_dim=16, prompts=prompts)
    write_splade(masked, folder / "splade")
    write_colbert(base, folder / "colbert", expansion=EXPANSION)
    save_bge_m3(base, folder / "three")
    each = sorted(folder.iterdir())
    told = environment(onnx_runtime)
    done = run([sys.executable, "-W", "ignore", "-c", EXPORT, *each], folder, told)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def variables(
    install: Callable[..., Path], onnx_runtime: Path, models: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """The environment of a shell with the family installed, and neither torch nor transformers."""
    lean = tmp_path_factory.mktemp("lean")
    (lean / "sitecustomize.py").write_text(HIDE)
    path = os.pathsep.join(map(str, (lean, install("outside_onnx"), onnx_runtime)))
    chosen = {"SIE_MODELS_DIR": str(models), "SIE_HF_FALLBACK": "false", "SIE_DEVICE": "cpu", "SIE_PLUGINS": "onnx"}
    return environment(PYTHONPATH=path, SIE_DEFAULT_COMPUTE_PRECISION="float32", **chosen)


@pytest.fixture(scope="module")
def client(variables: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[SIEClient]:
    names = "pooled,layers,splade,colbert,three"
    with server(["--preload", names], tmp_path_factory.mktemp("server"), variables) as url, SIEClient(url) as client:
        assert httpx.get(f"{url}/v1/models/pooled", timeout=60).json()["notes"]["runner"] == "onnxruntime"
        yield client


def test_the_family_has_at_most_80_lines() -> None:
    sources = [file.read_text() for file in (DATA / "outside_onnx").rglob("*.py")]
    assert sum(len(source.splitlines()) for source in sources) <= 80
    nodes = [node for source in sources for node in ast.walk(ast.parse(source))]
    froms = {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    assert {str(name).partition(".")[0] for name in froms} == {"sie_core", "sie_text"}


@pytest.mark.parametrize("pooling", POOLING_NAMES)
@pytest.mark.parametrize("normalize", [True, False])
def test_every_pooling_is_that_of_sie_pytorch(pooling: str, normalize: bool, client: SIEClient, models: Path) -> None:
    options = {"pooling": pooling, "normalize": normalize}
    answer = client.encode("pooled", TEXTS, options=options)
    model = encoders.serve(models / "pooled")
    close(np.stack([each["dense"] for each in answer]), encoders.ask(model, TEXTS, options=options).vectors)


@pytest.mark.parametrize("input_type", [None, "query", "document"])
def test_layers_and_prompts_are_those_of_sie_pytorch(input_type: Any, client: SIEClient, models: Path) -> None:
    answer = client.encode("layers", TEXTS, input_type=input_type)
    vectors = np.stack([each["dense"] for each in answer])
    assert vectors.shape == (len(TEXTS), 16)
    close(vectors, encoders.ask(encoders.serve(models / "layers"), TEXTS, input_type=input_type).vectors)


@pytest.mark.parametrize("options", [{}, {"max_active_dims": 5}])
@pytest.mark.parametrize("name", ["splade", "three"])
def test_sparse_weights_are_those_of_sie_pytorch(
    name: str, options: dict[str, Any], client: SIEClient, models: Path
) -> None:
    asked: dict[str, Any] = {"output_types": ("sparse",), "options": options}
    answer = client.encode(name, TEXTS, **asked)
    theirs = encoders.ask(encoders.serve(models / name), TEXTS, **asked).weights
    ours = np.zeros_like(theirs)
    for row, each in zip(ours, answer, strict=True):
        row[each["sparse"]["indices"]] = each["sparse"]["values"]
    close(ours, theirs)


@pytest.mark.parametrize("input_type", ["query", "document"])
@pytest.mark.parametrize("name", ["colbert", "three"])
def test_vectors_of_tokens_are_those_of_sie_pytorch(
    name: str, input_type: Any, client: SIEClient, models: Path
) -> None:
    asked: dict[str, Any] = {"output_types": ("multivector",), "input_type": input_type}
    answer = client.encode(name, TEXTS, **asked)
    theirs = encoders.ask(encoders.serve(models / name), TEXTS, **asked).outputs
    for each, their in zip(answer, theirs, strict=True):
        assert their.multivector is not None
        close(each["multivector"], their.multivector)


def test_one_request_gets_all_three(client: SIEClient) -> None:
    answer = client.encode("three", TEXTS[0], output_types=("dense", "sparse", "multivector"))
    assert {"dense", "sparse", "multivector"} <= set(answer)


def test_no_process_of_these_can_import_torch(client: SIEClient, variables: dict[str, str], tmp_path: Path) -> None:
    assert client.encode("pooled", TEXTS)
    code = "import sie_text.heads, sys; print(*sys.modules); import torch"
    done = run([sys.executable, "-c", code], tmp_path, variables)
    assert "No module named 'torch'" in done.stderr
    assert "sie_text.heads.build" in done.stdout.split()


def test_the_kit_finds_it_conforming(install: Any, onnx_runtime: Path, models: Path, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "from pathlib import Path\n\nfrom sie_kit import conformance\n\n"
        f'test_it = conformance("sie-test-outside-onnx", models=["three"], models_dir=Path({str(models)!r}))\n'
    )
    path = os.pathsep.join(map(str, (install("outside_onnx"), onnx_runtime)))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py"]
    done = run(command, tmp_path, environment(PYTHONPATH=path, SIE_HF_FALLBACK="false", SIE_DEVICE="cpu"))
    assert done.returncode == 0, done.stdout
    assert int(done.stdout.split(" passed")[0].split()[-1]) > 12


def close(ours: NDArray[Any], theirs: NDArray[Any]) -> None:
    assert ours.shape == theirs.shape
    assert np.abs(ours - theirs).max() <= BOUND * max(1.0, float(theirs.std()))
