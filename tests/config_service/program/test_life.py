"""The program from its start to its end: what it keeps, who leads, and what it says where it cannot start."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from click.testing import CliRunner
from sie_cluster.queue.access import CONFIG as CONFIG_USER
from sie_cluster.queue.access import accesses
from sie_cluster.settings import queue_variables

from sie_core.cli import main
from tests.config_service.api.serving import plugins
from tests.config_service.crashes.processes import until
from tests.config_service.program.conftest import config_server
from tests.config_service.program.test_broker import running
from tests.config_service.program.test_http import CONFIG, MODELS, epoch


def test_two_services_beside_each_other_write_and_follow_one_another(tmp_path: Path) -> None:
    local = plugins().queue_transports["nats"].local
    assert local is not None
    broker = local(tmp_path, accesses("_default"), 1)
    at_broker = queue_variables(broker.url, broker.logins[CONFIG_USER])
    stores = {name: {**at_broker, "SIE_CONFIG_STORE_DIR": str(tmp_path / "store")} for name in "ab"}
    with (
        running(broker, tmp_path / "broker.log"),
        config_server(tmp_path / "a", stores["a"]) as first,
        config_server(tmp_path / "b", stores["b"]) as second,
    ):
        until(lambda: httpx.get(f"{first.url}/readyz", timeout=60).status_code == 200, "it is never ready")
        assert httpx.post(f"{first.url}{MODELS}", json=CONFIG, timeout=60).json()["epoch"] == 1
        until(lambda: epoch(second) == 1, "the second does not follow")
        assert httpx.delete(f"{second.url}{MODELS}/acme/encoder", timeout=60).json()["epoch"] == 2
        first.signal(signal.SIGTERM)
        assert first.wait() == 0
        assert httpx.post(f"{second.url}{MODELS}", json=CONFIG, timeout=60).json()["epoch"] == 3
        until(lambda: json.loads((tmp_path / "store/configs.json").read_text())["epoch"] == 3, "there is no backup")


def test_an_empty_broker_is_restored_from_the_backup_at_the_start_and_by_the_command(tmp_path: Path) -> None:
    local = plugins().queue_transports["nats"].local
    assert local is not None
    broker = local(tmp_path, accesses("_default"), 1)
    env = {
        **queue_variables(broker.url, broker.logins[CONFIG_USER]),
        "SIE_CONFIG_STORE_DIR": str(tmp_path / "store"),
    }
    backup = tmp_path / "store/configs.json"
    with config_server(tmp_path / "config", env, ready=False) as server:
        with running(broker, tmp_path / "broker.log"):
            server.wait_until_ready()
            for sie_id in ("acme/encoder", "acme/other"):
                assert (
                    httpx.post(f"{server.url}{MODELS}", json={**CONFIG, "sie_id": sie_id}, timeout=60).status_code
                    == 201
                )
            export = httpx.get(f"{server.url}/v1/configs/export", timeout=60).text
            until(lambda: backup.exists() and json.loads(backup.read_text())["epoch"] == 2, "there is no backup")
        shutil.rmtree(tmp_path / "jetstream")
        with running(broker, tmp_path / "broker.log"):
            until(lambda: epoch(server) == 6, "the service restores nothing")  # two models, between two marks
            listed = httpx.get(f"{server.url}/v1/configs/export", timeout=60).json()
            assert len(listed["models"]) == len(json.loads(export)["models"])
            assert httpx.delete(f"{server.url}{MODELS}/acme/other", timeout=60).json()["epoch"] == 7
            (tmp_path / "export.json").write_text(export)
            command = ["config", "restore", str(tmp_path / "export.json")]
            told = CliRunner().invoke(main, command, env=env)
            assert (told.exit_code, told.stdout) == (0, "1 models at epoch 7; the backup is of epoch 2.\n"), told.output
            told = CliRunner().invoke(main, [*command, "--replace"], env=env)
            assert (told.exit_code, told.stdout) == (0, "2 models at epoch 8; the backup is of epoch 2.\n"), told.output
            until(lambda: epoch(server) == 8, "the service does not follow")
            assert httpx.get(f"{server.url}{MODELS}/acme/other", timeout=60).status_code == 200


def test_a_write_that_hangs_at_the_store_does_not_hold_up_the_end(tmp_path: Path) -> None:
    env = {"SIE_CONFIG_STORE_DIR": str(tmp_path / "store"), "SIE_DRAIN_TIMEOUT_S": "0.2"}
    with config_server(tmp_path / "config", env) as server:
        assert httpx.post(f"{server.url}{MODELS}", json=CONFIG, timeout=60).status_code == 201
        kept = tmp_path / "store" / "configs.json"
        kept.unlink()
        os.mkfifo(kept)  # whoever reads it waits for a writer, as on a disk that does not answer
        body = json.dumps(CONFIG).encode()
        address = urlsplit(server.url)
        with socket.create_connection((str(address.hostname), int(address.port or 0)), 20) as connection:
            head = f"POST {MODELS} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\nExpect: 100-continue"
            connection.sendall(f"{head}\r\n\r\n".encode())
            reply = connection.makefile("rb")
            assert b"100" in reply.readline()  # it is in flight
            connection.sendall(body)
            server.signal(signal.SIGTERM)
            told = reply.read()
            assert b"HTTP/1.1 503" in told
            assert b"config_store_unavailable" in told
        assert server.wait() == 0
        assert "SIGTERM: 1 requests in flight" in server.log()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--store", "pigeon://coop"], "SIE_CONFIG_STORE_DIR='pigeon://coop': no installed plugin serves pigeon://"),
        (["--bundles-dir", "nowhere"], "SIE_BUNDLES_DIR=nowhere: cannot be read"),
        (["--models-dir", "nowhere"], "SIE_MODELS_DIR=nowhere"),
    ],
)
def test_what_hinders_the_start_is_named_with_its_setting(tmp_path: Path, arguments: list[str], told: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        result = CliRunner().invoke(main, ["config", "serve", "--port", "0", *arguments])
    assert result.exit_code != 0
    assert told in result.output


@pytest.mark.parametrize("name", ["configs.json", "lease"])
def test_a_damaged_store_stops_the_start_and_says_how_to_repair_it(tmp_path: Path, name: str) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / name).write_text("nothing")
    result = CliRunner().invoke(main, ["config", "serve", "--port", "0", "--store", str(tmp_path / "store")])
    assert result.exit_code != 0
    assert str(tmp_path / "store") in result.output
    assert "backup" in result.output
