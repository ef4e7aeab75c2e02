"""The kit's fixtures: a model without an engine, and a server inside the test."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest
from sie_fake import RECORD
from sie_kit.comparing import answer_alone
from sie_sdk import SIEClient

from sie_core.contracts import Item
from sie_core.settings import SettingsError


def test_a_model_is_loaded_by_its_id(sie_model):
    model = sie_model("sie-fake/dense")

    (output,) = answer_alone(model.adapter, [Item(text="a")], model.task())

    assert model.family.id == "fake"
    assert output.dense.shape == (8,)


def test_a_server_in_the_test_answers_what_the_adapter_gives(sie_server, sie_model):
    model = sie_model("sie-fake/dense")
    (expected,) = answer_alone(model.adapter, [Item(text="a cat")], model.task())

    server = sie_server(preload_models="sie-fake/dense", plugins="fake")
    with SIEClient(server.url) as client:
        result = client.encode("sie-fake/dense", {"text": "a cat"})

    assert np.array_equal(result["dense"], expected.dense)


def test_requests_to_the_server_share_batches_and_each_gets_its_own(sie_server, tmp_path):
    hold = tmp_path / "hold"
    (tmp_path / "held.yaml").write_text(
        "sie_id: test/held\npackage_backed: true\ntasks: { encode: { dense: { dim: 8 } } }\n"
        "profiles: { default: { adapter_path: fake, adapter_options: { loadtime: { run_hold: "
        + str(hold)
        + " } } } }\n"
    )
    server = sie_server(preload_models="test/held", plugins="fake", models_dir=tmp_path)
    texts = [f"text number {n}" for n in range(12)]

    def embed(text: str) -> list[float]:
        answer = httpx.post(f"{server.url}/v1/embeddings", json={"model": "test/held", "input": text}, timeout=60)
        return answer.json()["data"][0]["embedding"]

    alone = [embed(text) for text in texts]
    RECORD.clear()
    hold.touch()
    with ThreadPoolExecutor(len(texts)) as pool:
        waiting = [pool.submit(embed, texts[0])]
        try:
            wait_for(lambda: RECORD.runs("test/held"))  # the device is held; whatever comes now must queue
            waiting += [pool.submit(embed, text) for text in texts[1:]]
            wait_for(lambda: gauge(server, "sie_queue_units") >= len(texts) - 1)
        finally:
            hold.unlink()
        together = [one.result(timeout=60) for one in waiting]

    assert together == alone
    assert len(RECORD.runs("test/held")) < len(texts)
    assert sum(run.size for run in RECORD.runs("test/held")) == len(texts)


def test_two_servers_run_side_by_side(sie_server):
    one, other = sie_server(plugins="fake"), sie_server(plugins="fake")

    assert one.url != other.url
    for server in (one, other):
        assert httpx.get(f"{server.url}/readyz", timeout=30).status_code == 200


def test_a_wrong_setting_is_told_before_anything_starts(sie_server):
    with pytest.raises(SettingsError, match="no such model"):
        sie_server(preload_models="test/nothing", plugins="fake")


def gauge(server, name: str) -> float:
    rows = httpx.get(f"{server.url}/metrics", timeout=30).text.splitlines()
    (row,) = [row for row in rows if row.startswith(f"{name} ")]
    return float(row.split()[1])


def wait_for(condition) -> None:
    until = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.005)
