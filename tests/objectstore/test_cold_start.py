"""Servers that start with an empty disk and no Hub: weights come from a real S3 gateway, and vectors are right or none.

What failed is tried again after a pause; here it is too short to wait for.
"""

from __future__ import annotations

import shutil
import subprocess
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
from sie_core.cache.store import layout
from sie_core.contracts import WeightRequest
from sie_core.engine.timeouts import Timeouts
from tests.objectstore.conftest import Impatient
from tests.objectstore.proxy import Faults
from tests.pytorch.encoders import save_encoder
from tests.pytorch.models import HIDDEN, write_checkpoint

COMMIT = "c" * 40
TEXTS = ["a red fox", "two blue cars and a very long road"]
WEIGHTS = f"models--org--tiny/snapshots/{COMMIT}/model.safetensors"
CONFIG = """\
sie_id: org/tiny
hf_id: org/tiny
profiles: { default: {}, second: { extends: default }, third: { extends: default } }
"""


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny encoder, as a snapshot of the Hub."""
    folder = tmp_path_factory.mktemp("encoder")
    save_encoder(write_checkpoint("bert", folder / "base"), folder / "whole", st.Pooling(HIDDEN, "mean"))
    snapshot = folder / "models--org--tiny/snapshots" / COMMIT
    return Path(shutil.copytree(folder / "whole", snapshot))


@pytest.fixture(scope="module")
def expected(encoder: Path) -> np.ndarray:
    """The reference's vectors."""
    return SentenceTransformer(str(encoder), device="cpu").encode(TEXTS)


@pytest.fixture
def start(
    sie_server: Callable[..., Any],
    store: BucketStore,
    encoder: Path,
    tmp_path: Path,
    impatient: Impatient,
) -> Callable[..., str]:
    """Start a server whose only weights are in the store; gives its URL."""
    timeouts = Timeouts(cooldown_s={"NETWORK": 0.0, "STORAGE": 0.0}, permanent_cooldown_s=0.0)
    ClusterTier(store, DiskCache(tmp_path / "none"), fills=True).fill(WeightRequest("org/tiny"), encoder)
    models = tmp_path / "models"
    models.mkdir()
    (models / "tiny.yaml").write_text(CONFIG)

    def start(cache: Path = tmp_path / "cache") -> str:
        settings = {"cluster_cache": store.url, "local_cache": cache, "hf_fallback": False}
        url: str = sie_server(models_dir=models, default_compute_precision="float32", timeouts=timeouts, **settings).url
        return url

    return start


def embed(url: str, model: str = "org/tiny") -> httpx.Response:
    body = {"items": [{"text": text} for text in TEXTS]}
    return httpx.post(f"{url}/v1/encode/{model}", json=body, headers={"Prefer": "wait=60"}, timeout=60)


def deviation(answer: httpx.Response, expected: np.ndarray) -> float:
    assert answer.status_code == 200, answer.text
    return float(np.abs(np.array([item["dense"]["values"] for item in answer.json()["items"]]) - expected).max())


def refusal(answer: httpx.Response, failure: str) -> str:
    """Say why there is no vector."""
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (502, "MODEL_LOAD_FAILED"), answer.text
    assert error["error_class"] == failure, error["message"]
    return str(error["message"])


def remount(disk: Path, option: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{option}", str(disk)], check=True)


def damaged(content: bytes) -> list[bytes]:
    """Tamper with weights, and truncate them."""
    return [content[:-1] + bytes([content[-1] ^ 64]), content[: len(content) // 2]]


def test_a_cold_start_gives_the_references_vectors(start: Callable[[], str], expected: np.ndarray) -> None:
    assert deviation(embed(start()), expected) <= 1e-5


def test_a_cold_start_survives_a_store_that_fails_half_of_its_requests(
    start: Callable[[], str], proxy: Faults, expected: np.ndarray
) -> None:
    proxy.every_other_fails = True
    assert deviation(embed(start()), expected) <= 1e-5
    assert proxy.failed >= 3


def test_a_cold_start_survives_answers_cut_in_the_middle_of_a_file(
    start: Callable[[], str], proxy: Faults, expected: np.ndarray
) -> None:
    proxy.cut_firsts = True
    assert deviation(embed(start()), expected) <= 1e-5
    assert any(path.endswith("/model.safetensors") for path in proxy.broken_off)


def test_a_store_that_is_gone_is_a_502_that_names_it_and_the_server_recovers_when_it_returns(
    start: Callable[[], str], proxy: Faults, store: BucketStore, expected: np.ndarray
) -> None:
    url = start()
    proxy.gone = True
    assert store.url in refusal(embed(url), "NETWORK")
    assert httpx.get(f"{url}/livez", timeout=60).text == httpx.get(f"{url}/readyz", timeout=60).text == "ok"
    proxy.gone = False
    assert deviation(embed(url), expected) <= 1e-5


def test_weights_damaged_in_the_store_never_make_a_wrong_vector(
    start: Callable[[], str], store: BucketStore, encoder: Path, expected: np.ndarray
) -> None:
    url, key = start(), layout.file_key("org/tiny", COMMIT, "model.safetensors")
    content = store.read(key)
    for wrong in damaged(content):
        store.write(key, wrong)
        assert store.url in refusal(embed(url), "CORRUPT")
    store.write(key, content)
    assert deviation(embed(url), expected) <= 1e-5


def test_weights_damaged_on_the_local_disk_never_make_a_wrong_vector(
    start: Callable[[], str], proxy: Faults, tmp_path: Path, expected: np.ndarray
) -> None:
    url = start()
    assert deviation(embed(url), expected) <= 1e-5
    weights = (tmp_path / "cache" / WEIGHTS).resolve()
    for wrong, profile in zip(damaged(weights.read_bytes()), ("second", "third"), strict=True):
        weights.unlink()  # the model that is loaded keeps what it has mapped
        weights.write_bytes(wrong)
        proxy.gone = True
        told = refusal(embed(url, f"org/tiny:{profile}"), "NETWORK")
        assert "model.safetensors of org/tiny in the local cache has" in told
        assert deviation(embed(url), expected) <= 1e-5
        proxy.gone = False
        assert deviation(embed(url, f"org/tiny:{profile}"), expected) <= 1e-5


@pytest.mark.parametrize(
    ("size", "broken", "mended"),
    [("64k", "size=64k", "size=8m"), ("8m", "ro", "rw")],
    ids=["full", "read-only"],
)
def test_a_local_cache_that_takes_nothing_is_a_502_that_names_the_setting_and_serves_once_it_does(
    start: Callable[..., str], disk: Callable[[str], Path], expected: np.ndarray, size: str, broken: str, mended: str
) -> None:
    cache = disk(size)
    remount(cache, broken)
    url = start(cache)
    assert "SIE_LOCAL_CACHE" in refusal(embed(url), "STORAGE")
    assert httpx.get(f"{url}/livez", timeout=60).text == "ok"
    remount(cache, mended)
    assert deviation(embed(url), expected) <= 1e-5


def test_a_read_only_local_cache_serves_what_it_has_without_the_store(
    start: Callable[..., str], proxy: Faults, disk: Callable[[str], Path], encoder: Path, expected: np.ndarray
) -> None:
    cache = disk("8m")
    repository = shutil.copytree(encoder.parents[1], cache / "models--org--tiny")
    (repository / "refs").mkdir()
    (repository / "refs/main").write_text(COMMIT)
    remount(cache, "ro")
    url = start(cache)
    proxy.gone = True
    assert deviation(embed(url), expected) <= 1e-5
