"""Four clients ask eight models at once, where three fit and where one does: loads stay near an ideal LRU's."""

from __future__ import annotations

import time
from collections import defaultdict

import httpx
import numpy as np
import pytest

from tests.conftest import run_server
from tests.soak.many.models import names
from tests.soak.many.serving import metric, resident
from tests.soak.many.traffic import Traffic, misses_of_lru, zipf

MB = 10**6
MODELS, CLIENTS, REQUESTS, EXPONENT = 8, 4, 200, 1.1
MOST_LOADS = 1.05
"""As a share of an ideal LRU's."""


@pytest.mark.parametrize("held", [3, 1])
def test_four_clients_ask_eight_models_by_zipf_s_law(catalog, long_version, tmp_path, held):
    if not long_version:
        pytest.skip("takes minutes; `make soak` runs it")
    limit = catalog.limit(held)
    settings = {"SIE_MODELS_DIR": str(catalog.folder), "SIE_DEVICE": "cpu", "OMP_NUM_THREADS": "1"}
    with run_server(tmp_path / "limited", {**settings, "SIE_MEMORY_LIMIT_BYTES": str(limit)}) as server:
        traffic = Traffic(server.url, zipf(names()[:MODELS], REQUESTS, exponent=EXPONENT))
        started = time.monotonic()
        traffic.run(threads=CLIENTS)
        wall_s = time.monotonic() - started
        loads, peak = metric(server.url, "sie_model_loads_total"), resident(server, "VmHWM")
    ideal = misses_of_lru(traffic.admitted, held)
    print(
        f"{held} of {MODELS} models fit, {REQUESTS} requests of {CLIENTS} clients: {loads:.0f} loads, {ideal} of an "
        f"ideal LRU, ratio {loads / ideal:.2f}; {wall_s:.1f} s; peak {peak / MB:.0f} of {limit / MB:.0f} MB"
    )
    assert not traffic.failures
    assert traffic.answered == REQUESTS
    with run_server(tmp_path / "unlimited", settings) as server:
        _assert_same_vectors(traffic.vectors, server.url)
    assert peak <= limit
    assert loads <= MOST_LOADS * ideal


def _assert_same_vectors(vectors, url):
    """Compare answers with those of a server in which every model stays loaded."""
    texts = defaultdict(list)
    for model, text in vectors:
        texts[model].append(text)
    for model, asked in texts.items():
        answer = httpx.post(f"{url}/v1/embeddings", json={"model": model, "input": asked}, timeout=120)
        expected = [row["embedding"] for row in answer.raise_for_status().json()["data"]]
        np.testing.assert_allclose([vectors[model, text] for text in asked], expected, atol=1e-4, err_msg=model)
