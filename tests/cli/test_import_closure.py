"""`sie --help` answers in a blink: the command imports nothing of the engine until a command runs."""

import subprocess
import sys

import pytest

HEAVY = (
    "torch",
    "transformers",
    "sentence_transformers",
    "fastapi",
    "starlette",
    "uvicorn",
    "pydantic",
    "numpy",
    "msgpack",
)
LOADED = "import sys; print(*(name for name in {names!r} if name in sys.modules))"


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=250, check=True)
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    "code",
    [
        "import sie_core.cli",
        "import sie_core.cli; sie_core.cli.main(['--help'], standalone_mode=False)",
        "import sie_core.cli; sie_core.cli.main(['--version'], standalone_mode=False)",
        "import sie_core.cli; sie_core.cli.main(['serve', '--help'], standalone_mode=False)",
    ],
)
def test_help_imports_nothing_heavy(code: str) -> None:
    assert run(f"{code}\n{LOADED.format(names=HEAVY)}") == ""


def test_the_threads_are_counted_out_before_any_numeric_library_is_imported() -> None:
    code = """
import sys, sie_core.cli.serve as serve, sie_core.cli.composition.program as program
def check(budget):
    print(*(name for name in ("numpy", "torch", "tokenizers") if name in sys.modules))
    raise SystemExit
program.set_thread_environment = check
serve.command(["--log-level", "ERROR"])
"""
    assert run(code) == ""


def test_plugins_are_listed_without_a_model_library() -> None:
    code = "import sie_core.cli; sie_core.cli.main(['plugins'], standalone_mode=False)"
    assert run(f"{code}\n{LOADED.format(names=('torch', 'transformers', 'fastapi'))}") == ""


def test_a_server_loads_fastapi_for_the_openapi_document_alone() -> None:
    code = "import sie_core.server.run; from sie_core.api import create_app"
    assert run(f"{code}\n{LOADED.format(names=('torch', 'transformers', 'fastapi', 'jinja2', 'filelock'))}") == ""


def test_a_server_loads_what_speaks_websocket_for_the_first_one_alone() -> None:
    code = "from sie_core.serving.http_server import HttpServer; HttpServer(None, None, [b'/']).config.load()"
    assert run(f"{code}\n{LOADED.format(names=('wsproto', 'h11'))}") == ""


def test_what_a_program_imports_is_left_out_of_later_passes_of_the_garbage_collector() -> None:
    code = """
import gc, sie_core.cli.composition.program as program
with program.program():
    print(gc.get_freeze_count() > 10_000)
"""
    assert run(code) == "True"


def test_an_adapter_process_loads_no_routes_and_no_model_library_before_a_model() -> None:
    code = "import sie_cluster.worker.serving"
    assert run(f"{code}\n{LOADED.format(names=('torch', 'transformers', 'fastapi', 'sie_core.api.app'))}") == ""


def test_a_gateway_that_dials_no_workers_loads_no_client() -> None:
    code = "import sie_cluster.gateway.run"
    assert run(f"{code}\n{LOADED.format(names=('sie_sdk.client', 'sie_sdk.async_client'))}") == ""


@pytest.mark.parametrize("program", ["gateway", "sidecar"])
def test_gateway_and_sidecar_load_no_engine_and_no_model_library(program: str) -> None:
    code = (
        "from sie_cluster.settings import ClusterSettings as Settings; from sie_core.plugins import discover;"
        f"from sie_core.defaults import BUILTINS; import sie_cluster.{program}.run as run;"
        "from sie_cluster.queue.broker import transport_maker;"
        "settings = Settings(nats_url='memory://x'); transport_maker(settings, discover(settings, BUILTINS))"
    )
    assert run(f"{code}\n{LOADED.format(names=('torch', 'transformers', 'sie_core.engine'))}") == ""
