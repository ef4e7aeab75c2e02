"""Where plugins are installed without their libraries, the config service tells of every model as where they are."""

from __future__ import annotations

import subprocess
from pathlib import Path

import httpx

from tests.config_service.program.bare_environment import make_bare_environment
from tests.config_service.program.conftest import ADMIN, config_server
from tests.conftest import Server

LIBRARIES = ("torch", "transformers", "tokenizers", "safetensors", "sentence_transformers", "peft", "nats", "obstore")
TOLD = ("bundle_config_hashes", "bundle_pool_config_hashes", "bundle_adapters", "models")


def told(server: Server) -> dict[str, object]:
    """What it tells but its epoch."""
    export = httpx.get(f"{server.url}/v1/configs/export", headers=ADMIN, timeout=60).json()
    epoch = httpx.get(f"{server.url}/v1/configs/epoch", headers=ADMIN, timeout=60).json()
    return {**epoch, **{name: export[name] for name in TOLD}, "epoch": None}


def test_the_export_without_libraries_is_that_with_them_and_none_is_imported(server: Server, tmp_path: Path) -> None:
    python = make_bare_environment(tmp_path / "bare")
    tried = "import importlib.util as u, sys; print([n for n in sys.argv[1:] if u.find_spec(n)])"
    found = subprocess.run([python, "-c", tried, *LIBRARIES], capture_output=True, text=True, timeout=250, check=True)
    assert found.stdout == "[]\n", "the environment is not bare"
    with config_server(tmp_path / "without", prefix=(str(python),)) as without:
        expected = told(server)
        assert len(expected["models"]) > 100  # type: ignore[arg-type]
        assert told(without) == expected
        assert "broken" not in without.log()
        mapped = Path(f"/proc/{server.process.pid}/maps").read_text()
        assert [name for name in LIBRARIES if f"/{name}/" in mapped] == []
