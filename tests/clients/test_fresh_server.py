"""Clients that ask what a model is before anybody has loaded it: LanceDB's registry, and how Dify lists models."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.clients.conftest import ClientEnvironment
from tests.conftest import MINILM, run_server

pytestmark = [pytest.mark.client, pytest.mark.timeout(600)]

ALIAS = "text-embedding-3-small"
RERANKER = {"model_type": "bert", "architectures": ["BertForSequenceClassification"], "id2label": {"0": "LABEL_0"}}


@pytest.fixture(scope="module")
def fresh_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server that has loaded nothing, with a folder of a reranker's weights, and real ones by a name of OpenAI's."""
    folder = tmp_path_factory.mktemp("fresh")
    weights = folder / "models/org/ranks"
    weights.mkdir(parents=True)
    (weights / "config.json").write_text(json.dumps(RERANKER))
    (weights / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 512}))
    Path(weights / "model.safetensors").write_bytes(b"\x02\0\0\0\0\0\0\0{}")
    (folder / "models/alias.yaml").write_text(json.dumps({"sie_id": ALIAS, "hf_id": MINILM}))
    with run_server(folder, {"SIE_PLUGINS_BLOCKED": "fake"}) as server:
        yield server.url


def test_dify_lists_models_by_their_types_and_limits(fresh_server: str) -> None:
    """As its provider for text-embeddings-inference reads `/info`: one key is the type, absent limits have defaults."""
    kinds = {}
    for model in (MINILM, "org/ranks"):
        info = httpx.get(f"{fresh_server}/tei/{model}/info", timeout=30).json()
        (kind,) = info["model_type"]
        kinds[model] = kind, int(info.get("max_input_length", 512)), int(info.get("max_client_batch_size", 1)) > 1
    assert kinds == {MINILM: ("embedding", 256, True), "org/ranks": ("reranker", 512, True)}
    available = httpx.get(f"{fresh_server}/v1/models?available=true", timeout=30).json()
    assert sorted(model["id"] for model in available["data"]) == ["org/ranks", MINILM, ALIAS]


def test_lancedb_makes_tables_of_a_model_nobody_has_loaded(
    lancedb_client: ClientEnvironment, fresh_server: str
) -> None:
    assert not httpx.get(f"{fresh_server}/v1/models/{ALIAS}", timeout=30).json()["loaded"]
    texts = ["a red fox in the snow", "the price of copper fell", "how to bake bread"]
    told = lancedb_client.run("lancedb_registry.py", url=fresh_server, model=ALIAS, texts=texts, query="baking a loaf")
    for each in (told["listed"], told["openai"]):
        assert each["dims"] == 384
        assert each["found"][0] == "how to bake bread"
        assert sorted(each["found"]) == sorted(texts)
