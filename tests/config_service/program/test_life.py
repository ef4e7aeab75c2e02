"""The program from its start to its end: what it keeps, who leads, and what it says where it cannot start."""

from __future__ import annotations

import os
import re
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

from sie_core.cli import main
from tests.config_service.crashes.processes import until
from tests.config_service.program.conftest import config_server
from tests.config_service.program.test_http import CONFIG, MODELS


def test_a_second_service_takes_over_with_all_that_was_written_and_ends_where_its_lease_is_damaged(
    tmp_path: Path,
) -> None:
    shared = {"SIE_CONFIG_STORE_DIR": str(tmp_path / "store")}
    with config_server(tmp_path / "a", shared) as first:
        posted = httpx.post(f"{first.url}{MODELS}", json=CONFIG)
        assert posted.status_code == 201
        with config_server(tmp_path / "b", shared, ready=False) as second:
            second.wait_for_log("standby")
            probe = httpx.get(f"{second.url}/readyz")
            assert (probe.status_code, probe.text) == (
                *(503, f"stands by: {posted.json()['router_id']} holds the lease of the store"),
            )
            assert httpx.delete(f"{second.url}{MODELS}/acme/encoder").status_code == 503
            first.signal(signal.SIGTERM)
            assert first.wait() == 0
            second.wait_until_ready()
            told = httpx.get(f"{second.url}/v1/configs/epoch").json()
            assert told["epoch"] == 1
            assert httpx.delete(f"{second.url}{MODELS}/acme/encoder").json()["epoch"] == 2
            (tmp_path / "store" / "lease").write_text("no lease")
            assert second.wait() == 1
            assert re.search(r"Error: .*is no lease .*backup", second.log())


def test_a_write_that_hangs_at_the_store_does_not_hold_up_the_end(tmp_path: Path) -> None:
    env = {"SIE_CONFIG_STORE_DIR": str(tmp_path / "store"), "SIE_DRAIN_TIMEOUT_S": "0.2"}
    with config_server(tmp_path / "config", env) as server:
        lease = tmp_path / "store" / "lease"
        lease.unlink()
        os.mkfifo(lease)  # whoever reads it waits for a writer, as on a disk that does not answer
        with ThreadPoolExecutor() as threads:
            writing = threads.submit(httpx.post, f"{server.url}{MODELS}", json=CONFIG, timeout=60)
            until(lambda: any((tmp_path / "store").glob("commits/*")), "the write never begins")
            server.signal(signal.SIGTERM)
            assert server.wait() == 0
            answer = writing.result()
            assert (answer.status_code, answer.json()["error"]["error"]) == (503, "config_store_unavailable")
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


def test_a_damaged_store_stops_the_start_and_says_how_to_repair_it(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "lease").write_text("no lease")
    result = CliRunner().invoke(main, ["config", "serve", "--port", "0", "--store", str(tmp_path / "store")])
    assert result.exit_code != 0
    assert "is no lease" in result.output
    assert "backup" in result.output
