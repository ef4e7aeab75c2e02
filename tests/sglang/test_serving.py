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
from urllib.parse import urlsplit

import numpy as np
import psutil
import pytest
from sie_sdk import ServerError, SIEClient

from tests.conftest import FAKES, Server, run_server
from tests.sglang.conftest import write_python
from tests.sglang.siege import ALLOWED, BOUND_S, FAULTS, HANGS_S, MODEL, Siege, engines, write_config


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
