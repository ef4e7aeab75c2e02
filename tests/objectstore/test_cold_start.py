"""A server that starts with an empty disk and no Hub: weights come from a real S3 gateway, and vectors are right."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules as st
from sie_objectstore.store import BucketStore

from sie_core.cache import ClusterTier, DiskCache
from sie_core.contracts import WeightRequest
from tests.objectstore.proxy import Faults
from tests.pytorch.encoders import save_encoder
from tests.pytorch.models import HIDDEN, write_checkpoint

COMMIT = "c" * 40
TEXTS = ["a red fox", "two blue cars and a very long road"]
CONFIG = "sie_id: org/tiny\nhf_id: org/tiny\nprofiles: { default: {} }\n"


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny encoder, as a snapshot of the Hub."""
    folder = tmp_path_factory.mktemp("encoder")
    save_encoder(write_checkpoint("bert", folder / "base"), folder / "whole", st.Pooling(HIDDEN, "mean"))
    snapshot = folder / "models--org--tiny/snapshots" / COMMIT
    return Path(shutil.copytree(folder / "whole", snapshot))


@pytest.fixture
def start(sie_server: Callable[..., Any], store: BucketStore, encoder: Path, tmp_path: Path) -> Callable[[], str]:
    """Start a server whose only weights are in the store; gives its URL."""
    ClusterTier(store, DiskCache(tmp_path / "none"), fills=True).fill(WeightRequest("org/tiny"), encoder)
    models = tmp_path / "models"
    models.mkdir()
    (models / "tiny.yaml").write_text(CONFIG)

    def start() -> str:
        settings = {"cluster_cache": store.url, "local_cache": tmp_path / "cache", "hf_fallback": False}
        url: str = sie_server(models_dir=models, default_compute_precision="float32", **settings).url
        return url

    return start


def embed(url: str) -> httpx.Response:
    return httpx.post(f"{url}/v1/embeddings", json={"model": "org/tiny", "input": TEXTS}, timeout=60)


def vectors(answer: httpx.Response) -> np.ndarray:
    assert answer.status_code == 200, answer.text
    return np.array([row["embedding"] for row in answer.json()["data"]], np.float32)


def test_a_cold_start_gives_the_references_vectors(start: Callable[[], str], encoder: Path) -> None:
    expected = SentenceTransformer(str(encoder), device="cpu").encode(TEXTS)
    assert np.abs(vectors(embed(start())) - expected).max() <= 1e-5


def test_a_cold_start_survives_a_store_that_fails_half_of_its_requests(
    start: Callable[[], str], proxy: Faults, encoder: Path
) -> None:
    expected = SentenceTransformer(str(encoder), device="cpu").encode(TEXTS)
    proxy.every_other_fails = True
    assert np.abs(vectors(embed(start())) - expected).max() <= 1e-5
    assert proxy.failed >= 3


def test_a_store_that_is_gone_is_a_502_that_names_it_and_the_next_start_serves(
    start: Callable[[], str], proxy: Faults, store: BucketStore
) -> None:
    proxy.gone = True
    answer = embed(start())
    assert answer.status_code == 502
    assert "NETWORK" in answer.text
    assert store.url in answer.text
    proxy.gone = False
    assert vectors(embed(start())).shape == (2, HIDDEN)


def test_weights_damaged_on_the_local_disk_never_make_a_wrong_vector(
    start: Callable[[], str], proxy: Faults, tmp_path: Path
) -> None:
    expected = vectors(embed(start()))
    weights = tmp_path / "cache/models--org--tiny/snapshots" / COMMIT / "model.safetensors"
    content = weights.read_bytes()
    for damaged in (content[:-1] + bytes([content[-1] ^ 64]), content[: len(content) // 2]):
        weights.resolve().write_bytes(damaged)
        proxy.gone = True
        answer = embed(start())
        assert answer.status_code == 502
        assert "model.safetensors of org/tiny in the local cache has" in answer.text
        proxy.gone = False
        assert np.array_equal(vectors(embed(start())), expected)
