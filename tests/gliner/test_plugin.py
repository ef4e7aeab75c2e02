"""What the plugin registers, and that registering costs no model library."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from sie_kit import checks_of, conformance, failures

from sie_core.defaults import BUILTINS
from sie_core.plugins import discover
from sie_core.settings import Settings

test_sie_gliner_conforms = conformance("sie-gliner", models=[])


def test_a_checkpoint_passes_every_check_of_an_adapter(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(trained, tmp_path / "models/test/planted")
    monkeypatch.setenv("SIE_MODELS_DIR", str(tmp_path / "models"))
    checks = checks_of("sie-gliner", models=["test/planted"])
    assert len([check for check in checks if check.part.startswith("model")]) > 8
    assert not failures(checks)


def test_the_plugin_is_active_and_registers_its_family() -> None:
    plugins = discover(Settings(strict_plugins=True), BUILTINS)
    assert plugins.families["gliner"].devices == frozenset({"cpu", "cuda", "mps"})


@pytest.mark.parametrize("module", ["sie_gliner.plugin", "sie_gliner.options"])
def test_a_module_imports_no_more_than_it_needs(module: str) -> None:
    code = f"import {module}, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=250, check=True)
    assert module in done.stdout.split()
    assert not {"torch", "transformers", "gliner", "tokenizers", "safetensors"} & set(done.stdout.split())
