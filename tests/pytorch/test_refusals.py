"""What a client is told of weights that no family serves as they are: from outside, by a server's own answers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import yaml
from sentence_transformers.sentence_transformer import modules as st
from sie_kit import serving

from tests.pytorch.encoders import deviation, reference, write_encoder
from tests.pytorch.models import HIDDEN
from tests.pytorch.test_own_code import OWN, qwen2

Checkpoint = Callable[[str], Path]


@pytest.fixture(scope="module")
def models(checkpoint: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders of weights by the names of their faults, and configs that say what to do with them."""
    models = tmp_path_factory.mktemp("models")
    own = qwen2(checkpoint, models / "own")
    for name, fields in {
        "ignored": {"profiles": {"default": {"adapter_options": {"loadtime": {"auto_map": "ignore"}}}}},
        "trusted": {"trust_remote_code": True},
    }.items():
        config = {"sie_id": name, "weights_path": str(shutil.copytree(own, models / f"weights-{name}")), **fields}
        (models / f"{name}.yaml").write_text(yaml.safe_dump(config))
    write_encoder(checkpoint("bert"), models / "module", st.Pooling(HIDDEN, "mean"))
    chain = json.loads((models / "module/modules.json").read_text())
    (models / "module/modules.json").write_text(json.dumps([{**chain[0], "type": "pylate.models.Odd.Odd"}]))
    write_encoder(checkpoint("xlm-roberta"), models / "jina", st.Pooling(HIDDEN, "mean"))
    (models / "jina/modules.json").write_text(json.dumps([{**chain[0], "type": "custom_st.Transformer"}, chain[1]]))
    config = json.loads((models / "jina/config.json").read_text())
    config |= {"lora_adaptations": ["retrieval.query"], "position_embedding_type": "rotary"}
    (models / "jina/config.json").write_text(json.dumps(config))
    for name, file in (("half", "model.fp16.safetensors"), ("gguf", "model.gguf")):
        shutil.copytree(checkpoint("bert"), models / name)
        (models / name / "model.safetensors").rename(models / name / file)
    return models


@pytest.fixture(scope="module")
def url(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    cache = tmp_path_factory.mktemp("cache")
    with serving(models_dir=models, local_cache=cache, hf_fallback=False, default_compute_precision="float32") as each:
        yield each.url


def ask(url: str, model: str) -> httpx.Response:
    body = {"model": model, "input": ["the lazy dog jumps"]}
    return httpx.post(f"{url}/v1/embeddings", json=body, headers={"Prefer": "wait=90"}, timeout=100)


REASONS = {
    "own": ("`auto_map`", OWN, "`trust_remote_code: true`", "`auto_map: ignore`"),
    "module": ("pytorch: modules.json begins with Odd, not with a Transformer",),
    "jina": ("Serve `jinaai/jina-embeddings-v3-hf`", "`trust_remote_code: true`"),
    "half": ("model.fp16.safetensors", "rename it to model.safetensors"),
    "gguf": ("GGUF (model.gguf)", "safetensors are needed"),
}


@pytest.mark.parametrize("model", REASONS)
def test_the_answer_says_what_is_wrong_with_the_weights_and_what_to_do(model: str, url: str) -> None:
    answer = ask(url, model)
    assert answer.status_code == 502
    for word in REASONS[model]:
        assert word in answer.text
    if model == "gguf":
        assert not httpx.get(f"{url}/v1/models/{model}", timeout=30).json()["available"]


@pytest.mark.parametrize("model", ["ignored", "trusted"])
def test_a_config_decides_which_class_serves_and_the_model_says_so(model: str, url: str, models: Path) -> None:
    answer = ask(url, model)
    assert answer.status_code == 200, answer.text
    vectors: Any = [each["embedding"] for each in answer.json()["data"]]
    library = reference(models / "own", trust_remote_code=model == "trusted")
    assert deviation(np.array(vectors, np.float32), library.encode(["the lazy dog jumps"])) <= 1e-5
    notes = httpx.get(f"{url}/v1/models/{model}", timeout=30).json()["notes"]
    assert OWN in notes["auto_map"]
