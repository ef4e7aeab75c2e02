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

MODEL = "test/qwen3"
CONFIG = """
sie_id: {name}
weights_path: {folder}
tasks: {{encode: {{dense: {{dim: 32}}}}}}
profiles: {{default: {{adapter_path: sglang, compute_precision: float32}}}}
"""
BOUND_S = 60.0


@pytest.fixture
def models(embedders: Path, tmp_path: Path) -> Path:
    """The config of one model whose engine has it, in a folder with a blank in its name."""
    weights = tmp_path / "some weights"
    shutil.copytree(embedders / MODEL, weights)
    folder = tmp_path / "server" / "models"
    folder.mkdir(parents=True)
    (folder / "model.yaml").write_text(CONFIG.format(name=MODEL, folder=weights))
    return weights


@pytest.fixture
def server(models: Path, tmp_path: Path, orders: Path) -> Iterator[Server]:
    python = write_python(tmp_path, orders, plain=True)
    with run_server(tmp_path / "server", {"SIE_SGLANG_PYTHON": str(python)}) as running:
        yield running


def engines(server: Server) -> list[psutil.Process]:
    return psutil.Process(server.process.pid).children(recursive=True)


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


def test_others_answer_while_an_engine_dies_and_the_client_waits_for_it(server: Server, orders: Path) -> None:
    with SIEClient(server.url, timeout_s=BOUND_S) as client:
        right = client.encode(MODEL, {"text": "one"})["dense"]
        (orders / "die").touch()
        again = client.encode(MODEL, {"text": "one"}, wait_for_capacity=True)["dense"]
        np.testing.assert_array_equal(again, right)
        assert client.encode(FAKES[0], {"text": "one"})["dense"].any()
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
