"""Probes tell a start apart from a failure, and what cannot start says why."""

import json
import socket
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

from sie_core.cli import main


def test_a_server_that_preloads_lives_but_is_not_ready(start_server, tmp_path: Path) -> None:
    hold, configs = tmp_path / "hold", tmp_path / "configs"
    hold.touch()
    configs.mkdir()
    (configs / "slow.yaml").write_text(
        f"""
sie_id: test/slow
package_backed: true
tasks: {{encode: {{dense: {{dim: 8}}}}}}
profiles:
  default:
    adapter_path: fake
    max_batch_tokens: 64
    adapter_options: {{loadtime: {{load_hold: {hold}}}}}
"""
    )
    server = start_server({"SIE_MODELS_DIR": str(configs)}, ["--preload", "test/slow"], ready=False)
    assert server.probe("/livez") == 200
    assert server.probe("/readyz") == 503
    assert "SIE serves on" not in server.log()
    hold.unlink()
    server.wait_until_ready()
    assert server.wait_for_log(r"SIE serves on (\S+)").group(1) == server.url
    assert httpx.get(f"{server.url}/v1/models/test/slow").json()["state"] == "loaded"


def test_a_taken_port_is_told_with_the_way_out(process_state: None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = CliRunner().invoke(main, ["serve", "--port", str(port)])
    assert done.exit_code == 1
    assert f"127.0.0.1:{port}" in done.output
    assert "--port" in done.output


@pytest.mark.parametrize(
    ("args", "env", "said"),
    [
        (["--host", "203.0.113.9"], {}, "203.0.113.9"),
        ([], {"SIE_HTTP_PORT": "99999"}, "SIE_HTTP_PORT='99999'"),
        (["--port", "http"], {}, "--port"),
        (["--port", "0", "--device", "cuda:99"], {}, "cuda:99"),
        (["--port", "0"], {"SIE_BATCH_POLICY": "nosuch"}, "nosuch"),
    ],
)
def test_what_cannot_start_says_why(process_state: None, args: list[str], env: dict[str, str], said: str) -> None:
    done = CliRunner().invoke(main, ["serve", *args], env=env)
    assert done.exit_code in (1, 2)
    assert said in done.output
    assert isinstance(done.exception, SystemExit), "an error for the operator, not a crash"


def test_the_start_is_logged_with_its_threads_and_its_doubts(start_server) -> None:
    server = start_server({"SIE_LOG_JSON": "true", "SIE_MAX_BATCH_COSTS": "1", "SIE_PORT": "tcp://10.0.0.1:80"})
    lines = [json.loads(line) for line in server.log().splitlines() if line.startswith("{")]
    messages = [line["message"] for line in lines]
    assert any("CPU budget" in message for message in messages)
    (doubt,) = (line for line in lines if "SIE_MAX_BATCH_COSTS" in line["message"])
    assert doubt["level"] == "WARNING"
    assert "SIE_MAX_BATCH_COST?" in doubt["message"]
    assert not any("SIE_PORT " in message for message in messages)
