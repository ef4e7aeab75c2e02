"""A server whose large models are an engine's: from outside, and when it is killed."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np
import psutil
import pytest
import yaml
from sie_sdk import ServerError, SIEClient

from tests.conftest import FAKES, Server, run_server
from tests.sglang.conftest import write_python
from tests.sglang.siege import ALLOWED, BOUND_S, FAULTS, HANGS_S, HEADERS, MODEL, Siege, engines, write_config


@pytest.fixture
def models(embedders: Path, tmp_path: Path) -> Path:
    """The config of one model whose engine has it, in a folder with a blank in its name."""
    weights = tmp_path / "some weights"
    shutil.copytree(embedders / MODEL, weights)
    write_config(weights, tmp_path / "server")
    return weights


@pytest.fixture
def server(models: Path, tmp_path: Path, orders: Path) -> Iterator[Server]:
    python = write_python(tmp_path, orders, plain=True)
    env = {"SIE_SGLANG_PYTHON": str(python), "SIE_SGLANG_ANSWER_TIMEOUT_S": str(HANGS_S)}
    with run_server(tmp_path / "server", env) as running:
        yield running


def test_a_killed_server_leaves_no_engine_behind(server: Server) -> None:
    with SIEClient(server.url, timeout_s=BOUND_S) as client:
        first = client.encode(MODEL, {"text": "one"})["dense"]
        listed = client.get_model(MODEL)
    assert np.linalg.norm(first) == pytest.approx(1.0, abs=1e-5)
    assert listed["notes"]["runner"].startswith("sglang 0.5.23")
    below = engines(server)
    assert len(below) >= 2, "a guard and an engine"
    server.signal(signal.SIGKILL)
    server.wait()
    assert not psutil.wait_procs(below, timeout=BOUND_S)[1]


def test_no_fault_of_the_engine_gives_a_wrong_answer_or_none_or_reaches_another_model(
    server: Server, orders: Path
) -> None:
    siege = Siege(server, orders)
    with siege.clients(8):
        siege.serves_again()
        for fault in FAULTS:
            siege.strike(fault)
    assert not siege.wrong
    assert not siege.others_failed
    assert siege.errors.keys() <= ALLOWED
    assert siege.errors["NON_FINITE_OUTPUT"] <= 1


def test_the_client_waits_for_an_engine_that_is_started_again(server: Server, orders: Path) -> None:
    with SIEClient(server.url, timeout_s=BOUND_S) as client:
        right = client.encode(MODEL, {"text": "one"})["dense"]
        (orders / "die").touch()
        again = client.encode(MODEL, {"text": "one"}, wait_for_capacity=True)["dense"]
        np.testing.assert_array_equal(again, right)
    assert not (orders / "die").exists()


def test_without_an_environment_the_others_serve_and_this_one_names_the_remedy(models: Path, tmp_path: Path) -> None:
    with run_server(tmp_path / "server") as running, SIEClient(running.url, timeout_s=BOUND_S) as client:
        with pytest.raises(ServerError, match="SIE_SGLANG_PYTHON is not set") as failed:
            client.encode(MODEL, {"text": "one"})
        assert failed.value.code == "MODEL_LOAD_FAILED"
        assert client.encode(FAKES[0], {"text": "one"})["dense"].any()


def test_neither_sglang_nor_torch_is_imported_for_it() -> None:
    code = "import sys, sie_sglang.loading; print({'torch', 'transformers', 'sglang'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout.strip() == b"set()"


def test_a_batch_that_nobody_waits_for_is_aborted_and_the_engine_serves_on(server: Server, orders: Path) -> None:
    with SIEClient(server.url, timeout_s=BOUND_S) as client:
        right = client.encode(MODEL, {"text": "one"})["dense"]
        before = engines(server)
        (orders / "hang").touch()
        leaving = HTTPConnection(urlsplit(server.url).netloc)
        body = json.dumps({"items": [{"text": f"text {n}"} for n in range(3)]})
        leaving.request("POST", f"/v1/encode/{MODEL}", body, {"Content-Type": "application/json"})
        wait_for(orders / "hangs")
        leaving.close()
        assert len(wait_for(orders / "aborted").split()) == 3, "every text of it"
        np.testing.assert_array_equal(client.encode(MODEL, {"text": "one"})["dense"], right)
        assert [each.pid for each in engines(server)] == [each.pid for each in before]


def wait_for(file: Path) -> str:
    """Wait until a file is there and written; return what it says."""
    deadline = time.monotonic() + BOUND_S
    while not (file.exists() and file.read_text()):
        assert time.monotonic() < deadline, file
        time.sleep(0.02)
    return file.read_text()


def test_bad_input_is_a_typed_error_and_never_an_argument(models: Path, tmp_path: Path, orders: Path) -> None:
    odd = tmp_path / "--trust-remote-code $(touch made) ; blank"
    shutil.copytree(models, odd)
    outside = "{default: {adapter_path: sglang, adapter_options: {loadtime: %s}}}"
    profiles = {
        "test/--trust-remote-code": "{default: {adapter_path: sglang, compute_precision: float32}}",
        "test/outside": outside % "{disable_radix_cache: true}",
        "test/shell": outside % '{attention_backend: "triton; touch made"}',
        "test/number": outside % '{tp_size: "2 --host=0.0.0.0"}',
    }
    for place, (name, profile) in enumerate(profiles.items()):
        config = {
            "sie_id": name,
            "weights_path": str(odd),
            "accept_token_ids": True,
            "profiles": yaml.safe_load(profile),
        }
        (tmp_path / "server" / "models" / f"{place}.yaml").write_text(yaml.safe_dump(config))
    python = write_python(tmp_path, orders, plain=True)
    with (
        run_server(tmp_path / "server", {"SIE_SGLANG_PYTHON": str(python)}) as running,
        httpx.Client(base_url=running.url, timeout=BOUND_S, headers=HEADERS) as client,
    ):

        def told(model: str, **body: object) -> tuple[int, dict[str, Any]]:
            while True:
                reply = client.post(f"/v1/encode/{model}", json={"items": [{"text": "one"}], **body})
                if reply.status_code != 503:
                    return reply.status_code, reply.json()

        right = told(MODEL)
        assert right[0] == 200
        assert told("test/--trust-remote-code")[1]["items"] == right[1]["items"]
        for name, says in (("outside", "disable_radix_cache"), ("shell", "attention_backend"), ("number", "tp_size")):
            status, body = told(f"test/{name}")
            assert (status, says in body["error"]["message"]) in {(400, True), (404, True), (502, True)}, body
        long = [{"text": "the quick brown fox " * 50_000}]
        status, body = told(MODEL, items=long)
        assert (status, body["items"][0].get("truncated") is not None) == (200, True), body
        status, body = told(MODEL, items=long, params={"options": {"truncate": "error"}})
        assert (status, body["error"]["code"]) == (400, "INVALID_INPUT"), body
        for ids, status in (([5, 10**9], 400), ([5, -1], 400), ([5] * 200_000, 200)):
            reply = client.post("/v1/embeddings", json={"model": "test/--trust-remote-code", "input": [ids]})
            assert reply.status_code == status, reply.text
        assert reply.json()["usage"]["prompt_tokens"] == 48, "cut as texts are"
        assert not list(tmp_path.rglob("made"))
