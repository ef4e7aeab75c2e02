"""`sie doctor --cluster`: of a cluster that runs all is well, and each fault is told with its remedy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from sie_core import __version__
from sie_core.cli import main
from tests.conftest import run_cluster

TOKENS = {"SIE_ADMIN_TOKEN": "the-admin", "SIE_CONFIG_READ_TOKEN": "the-follower"}
WRONG = "a-token-of-nobody"
DEMAND = {"data": {"result": [{"metric": {"machine_profile": "l4", "bundle": "default"}}]}}
pytestmark = [pytest.mark.timeout(300), pytest.mark.usefixtures("process_state")]


def doctor(env: Mapping[str, str], *args: str) -> Result:
    return CliRunner().invoke(main, ["doctor", "--cluster", *args], env=dict(env))


def states(result: Result) -> dict[str, tuple[str, str]]:
    """State and text of each finding, by its subject."""
    return {each["subject"]: (each["state"], each["told"]) for each in json.loads(result.stdout)}


@contextmanager
def answering(answers: Mapping[str, Any], headers: Mapping[str, str]) -> Iterator[str]:
    """A server that gives these answers by path; gives its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = answers.get(self.path.partition("?")[0])
            self.send_response_only(404 if answer is None else 200)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer.encode() if isinstance(answer, str) else json.dumps(answer).encode())

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            """Log nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_a_cluster_that_runs_is_well_and_wrong_tokens_logins_and_addresses_are_told(tmp_path: Path) -> None:
    with run_cluster(tmp_path, env=TOKENS) as server:
        service = server.wait_for_log(r"changed at (http://[^/]+)/")[1]
        broker = json.loads((tmp_path / "cluster/nats.conf").read_text())
        logins = {each["user"]: each["password"] for each in broker["authorization"]["users"]}
        env = {
            **TOKENS,
            "SIE_CONFIG_SERVICE_URL": service,
            "SIE_GATEWAY_URL": server.url,
            "SIE_NATS_URL": f"nats://{broker['host']}:{broker['port']}",
            "SIE_NATS_USER": "config",
            "SIE_NATS_PASSWORD": logins["config"],
            "SIE_PAYLOAD_STORE_URL": str(tmp_path / "payloads"),
        }
        with answering({"/api/v1/query": DEMAND}, {}) as prometheus:
            well = doctor(env, "--prometheus", prometheus, "--json")
        found = states(well)
        assert found.pop("store sie-pools")[0] in ("ok", "note")  # a gateway may not have made it yet
        assert (well.exit_code, {state for state, _ in found.values()}) == (0, {"ok"}), well.output
        assert {"config service, admin token", "gateway, configs", "worker worker-1", "Prometheus"} <= found.keys()
        assert {"broker", "queue sie-work-_default", "queue sie-dlq-_default", "payload store"} <= found.keys()
        sie = Path(sys.executable).with_name("sie")
        line = f". {tmp_path}/cluster/operator.env && {sie} cluster dead-letters && exec {sie} doctor --cluster --json"
        own = {**os.environ, "SIE_ADMIN_TOKEN": TOKENS["SIE_ADMIN_TOKEN"]}
        by_file = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=120, env=own)
        assert (by_file.returncode, by_file.stderr) == (0, "Queue pool _default has no dead letters.\n")
        by_hand = {"config service, admin token", "gateway, configs", "worker worker-1", "broker"}
        assert {each["subject"] for each in json.loads(by_file.stdout) if each["state"] == "ok"} >= by_hand
        user = next(each for each in logins if each.startswith("worker"))
        worker = states(doctor({**env, "SIE_NATS_USER": user, "SIE_NATS_PASSWORD": logins[user]}, "--json"))
        assert (worker["queue sie-work-_default"][0], worker["queue sie-dlq-_default"][0]) == ("ok", "skipped")
        (tmp_path / "file").touch()
        wrong = {"SIE_ADMIN_TOKEN": WRONG, "SIE_NATS_PASSWORD": WRONG, "SIE_GATEWAY_URL": "http://127.0.0.1:1"}
        ill = doctor({**env, **wrong, "SIE_PAYLOAD_STORE_URL": str(tmp_path / "file/below")}, "--json")
        found = states(ill)
        assert ill.exit_code == 1
        assert "SIE_ADMIN_TOKEN holds the token" in found["config service"][1]
        assert {found[each][0] for each in ("config service", "gateway", "broker", "payload store")} == {"wrong"}
        assert not [secret for secret in (WRONG, *TOKENS.values(), *logins.values()) if secret in ill.output]


def test_what_services_say_of_one_another_is_compared() -> None:
    worker = {"healthy": True, "bundle": "default", "bundle_config_hash": "new"}
    workers = [
        {**worker, "name": "well"},
        {**worker, "name": "old", "bundle_config_hash": "old"},
        {**worker, "name": "strange", "bundle": "acme"},
        {**worker, "name": "ill", "healthy": False},
    ]
    models = [{"affected_bundles": ["default"], "pool": "_default"}, {"affected_bundles": ["gpu"], "pool": "_default"}]
    answers = {
        "/readyz": "the store was not read",
        "/metrics": "sie_config_epoch 7.0\nsie_config_backup_epoch 4.0\nsie_config_broker_connected 0.0\n",
        "/health": {"problems": ["one broker of three"], "workers": workers},
        "/v1/configs/epoch": {"epoch": 6},
        "/v1/configs/export": {"epoch": 7, "models": models, "bundle_config_hashes": {"default": "new", "gpu": "g"}},
        "/api/v1/query": {"data": {"result": []}},
    }
    headers = {"Date": "Sat, 01 Jan 2000 00:00:00 GMT", "X-SIE-Server-Version": "0.1.0"}
    with answering(answers, headers) as url:
        env = {"SIE_CONFIG_SERVICE_URL": url, "SIE_GATEWAY_URL": url}
        result = doctor(env, "--prometheus", url, "--json")
        text = doctor(env, "--prometheus", url)
    found = states(result)
    assert result.exit_code == text.exit_code == 1
    wrong = {subject for subject, (state, _) in found.items() if state == "wrong"}
    assert wrong == {
        "config service, clock", "config service, store", "gateway, clock", "gateway, health", "gateway, configs",
        "worker old", "worker strange", "worker ill", "Prometheus",
    }  # fmt: skip
    assert found["gateway, version"] == ("note", f"it runs 0.1.0, and this command is of {__version__}")
    assert found["config service, store"][1] == "the backup lacks the last 3 writes"
    assert found["bundle gpu"][0] == found["config service, broker"][0] == "note"
    assert found["worker well"][0] == "ok"
    for each in json.loads(result.stdout):
        assert bool(each["remedy"]) == (each["state"] in ("wrong", "note")), each
        assert f"{each['state']:<7}  {each['subject']}: " in text.stdout


def test_without_the_option_it_says_who_checks_this_machine() -> None:
    result = CliRunner().invoke(main, ["doctor"])
    assert (result.exit_code, "sie plugins" in result.stderr) == (2, True)
