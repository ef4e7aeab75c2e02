"""What the plugin registers, and that registering costs no model library."""

import subprocess
import sys

import pytest

from sie_core.defaults import BUILTINS
from sie_core.plugins import discover
from sie_core.settings import Settings
from sie_core.testing import conformance

test_sie_gliner_conforms = conformance("sie-gliner", models=[])


def test_the_plugin_is_active_and_registers_its_family() -> None:
    plugins = discover(Settings(strict_plugins=True), BUILTINS)
    assert plugins.families["gliner"].devices == frozenset({"cpu", "cuda", "mps"})


@pytest.mark.parametrize("module", ["sie_gliner.plugin", "sie_gliner.options"])
def test_a_module_imports_no_more_than_it_needs(module: str) -> None:
    code = f"import {module}, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=90, check=True)
    assert module in done.stdout.split()
    assert not {"torch", "transformers", "gliner", "tokenizers", "safetensors"} & set(done.stdout.split())
