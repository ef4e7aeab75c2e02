"""Probes tell a start apart from a failure, and what cannot start says why."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import psutil
import pytest
from click.testing import CliRunner

from sie_core.cli import main
from sie_core.serving.listening import ListenError, address_of, listen, reserve, url_of
from tests.conftest import MINILM, run_server


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
    assert httpx.get(f"{server.url}/v1/models/test/slow", timeout=60).json()["state"] == "loaded"


@pytest.mark.skipif(sys.platform != "linux", reason="other systems keep no port that is not listened on")
def test_a_port_that_is_reserved_is_there_for_who_is_told_and_for_nobody_else() -> None:
    with reserve("127.0.0.1", 0) as (url, port):
        for _ in range(2):  # a program that is started again
            with listen("127.0.0.1", port) as listener:
                assert url_of(listener) == url
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))


def test_a_port_that_is_listened_on_cannot_be_reserved() -> None:
    with (
        listen("127.0.0.1", 0) as taken,
        pytest.raises(ListenError, match=r"another process has that port\. Choose another with --config-port,"),
        reserve("127.0.0.1", taken.getsockname()[1], chosen_by="--config-port"),
    ):
        pass


@pytest.mark.parametrize("host", ["a..b", "x" * 64, "host with blanks"])
def test_a_host_that_is_none_is_told(host: str) -> None:
    with pytest.raises(ListenError, match=f"Cannot listen on {host}:0: .* SIE_HTTP_HOST must be an address of this"):
        listen(host, 0)


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
        (["--port", "0"], {"SIE_SCHEDULER": "nosuch"}, "nosuch"),
        (["--port", "0"], {"HF_TOKEN": "hf_é"}, "HF_TOKEN=(a secret)"),
    ],
)
def test_what_cannot_start_says_why(process_state: None, args: list[str], env: dict[str, str], said: str) -> None:
    done = CliRunner().invoke(main, ["serve", *args], env=env)
    assert done.exit_code in (1, 2)
    assert said in done.output
    assert isinstance(done.exception, SystemExit), "an error for the operator, not a crash"


@pytest.mark.parametrize(
    ("bound", "told"),
    [
        ("127.0.0.1", "http://127.0.0.1:"),
        ("0.0.0.0", "http://0.0.0.0:"),
        ("::1", "http://[::1]:"),
        ("::", "http://[::]:"),
    ],
)
def test_the_address_that_is_listened_on_is_named_as_it_is(bound: str, told: str) -> None:
    try:
        listener = listen(bound, 0)
    except ListenError as error:
        pytest.skip(f"{bound} cannot be listened on here: {error}")
    with listener:
        assert address_of(listener).startswith(told)
        assert url_of(listener).startswith(told.replace("0.0.0.0", "127.0.0.1").replace("[::]", "[::1]"))


def test_a_server_on_every_address_says_so_and_takes_any_name(start_server) -> None:
    server = start_server({"SIE_PLUGINS": "fake"}, ["--host", "0.0.0.0"])
    assert server.url.startswith("http://0.0.0.0:")
    port = server.url.rpartition(":")[2]
    assert server.wait_for_log(r"SIE serves on (\S+)").group(1) == f"http://127.0.0.1:{port}"
    reply = httpx.get(
        f"http://127.0.0.1:{port}/v1/models", headers={"Host": "sie.default.svc.cluster.local"}, timeout=60
    )
    assert reply.status_code == 200


def test_a_server_on_loopback_refuses_a_name_that_is_not_its_own(fake_server: str) -> None:
    assert httpx.get(f"{fake_server}/v1/models", headers={"Host": "evil.example"}, timeout=60).status_code == 403
    assert httpx.get(f"{fake_server}/v1/models", headers={"Host": "localhost"}, timeout=60).status_code == 200


@pytest.mark.parametrize("command", ["> /dev/full", "| true"])
def test_a_stdout_that_cannot_be_written_does_not_end_the_server(tmp_path: Path, command: str) -> None:
    """A log collector that died, or a disk that is full."""
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full here")
    script = tmp_path / "serve.sh"
    script.write_text(f'{{ "$@"; echo "exit $?" > {tmp_path}/status; }} {command}\n')
    with run_server(tmp_path, {"SIE_PLUGINS": "fake"}, prefix=["bash", str(script)]) as server:
        server.wait_for_log("stdout cannot be written to")
        assert server.probe("/readyz") == 200
        below = psutil.Process(server.process.pid).children(recursive=True)
        next(each for each in below if not each.children()).terminate()
        server.wait()
    assert (tmp_path / "status").read_text().strip() == "exit 0"


@pytest.fixture
def without_temporary_folder(tmp_path: Path) -> list[str]:
    """Give the start of a command line that runs the rest of it where no temporary file can be written."""
    if any(Path(sys.executable).is_relative_to(each) for each in ("/tmp", "/var/tmp", "/usr/tmp")):
        pytest.skip("the program itself stands in a temporary folder")
    mounts = "for each in /tmp /var/tmp /usr/tmp; do [ ! -d $each ] || mount -t tmpfs -o ro none $each || exit; done"
    script = f'{mounts}; cd /proc; exec "$@"'
    prefix = ["env", "-u", "TMPDIR", "-u", "TEMP", "-u", "TMP", "unshare", "-m", "sh", "-c", script, "sh"]
    if subprocess.run([*prefix, "true"], capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    return prefix


def test_a_machine_without_a_temporary_folder_is_refused_by_name(without_temporary_folder: list[str]) -> None:
    """A read-only root, as Kubernetes has it: torch could be imported, and every load of a model would fail."""
    command = [*without_temporary_folder, Path(sys.executable).with_name("sie"), "serve", "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250)
    assert done.returncode == 2
    assert "TMPDIR" in done.stderr
    assert "emptyDir" in done.stderr


def test_a_library_that_is_broken_keeps_a_server_that_preloads_from_being_ready(start_server, tmp_path: Path) -> None:
    """Torch is there, but one of its own libraries is not."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").write_text("raise OSError('libtorch_cpu.so: cannot open shared object file')")
    variables = {"PYTHONPATH": str(tmp_path), "SIE_PLUGINS_BLOCKED": "cpu"}  # whose families need no torch
    server = start_server(variables, ["--preload", MINILM], ready=False)
    server.wait_for_log("not ready: ")
    reply = httpx.get(f"{server.url}/readyz", timeout=60)
    assert reply.status_code == 503
    assert MINILM in reply.text
    assert "raised OSError in torch" in reply.text
    assert "libtorch_cpu" not in reply.text, "the text of a foreign exception"


def test_the_start_is_logged_with_its_facts_and_its_doubts(start_server) -> None:
    server = start_server({"SIE_LOG_JSON": "true", "SIE_MAX_BATCH_COSTS": "1", "SIE_PORT": "tcp://10.0.0.1:80"})
    server.wait_for_log("SIE serves on")
    lines = [json.loads(line) for line in server.log().splitlines()]
    messages = [line["message"] for line in lines]
    (told,) = (line for line in lines if line["message"] == f"SIE serves on {server.url}")
    assert (told["url"], told["docs"]) == (server.url, f"{server.url}/docs")
    assert told["models"][0] == MINILM
    assert len(told["models"]) == 3
    assert f'"model": "{MINILM}"' in told["example"]
    assert not any("CPU budget" in message for message in messages)
    (doubt,) = (line for line in lines if "SIE_MAX_BATCH_COSTS" in line["message"])
    assert doubt["level"] == "WARNING"
    assert "SIE_MAX_BATCH_COST?" in doubt["message"]
    assert not any("SIE_PORT " in message for message in messages)


def test_two_processes_share_a_port_where_both_ask_for_it() -> None:
    with listen("127.0.0.1", 0, share=True) as first:
        port = first.getsockname()[1]
        with listen("127.0.0.1", port, share=True) as second:
            assert second.getsockname() == first.getsockname()
        with pytest.raises(ListenError, match=str(port)):
            listen("127.0.0.1", port)
