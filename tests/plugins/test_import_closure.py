"""Nothing heavy is imported before it is needed: seen in processes of their own."""

from __future__ import annotations

import subprocess
import sys

import pytest

MODELS = ("torch", "transformers", "sentence_transformers", "tokenizers", "safetensors")
WEB = ("fastapi", "starlette", "uvicorn")


def imported_by(code: str) -> set[str]:
    told = f"{code}\nimport sys\nprint(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    return set(done.stderr.split())


@pytest.mark.parametrize(
    "code",
    [
        "import sie_core.cli",
        "from sie_core.cli import main; main(['--help'], standalone_mode=False)",
        # a probe may import its library to look for its device
        "import os; os.environ['SIE_DEVICE'] = 'cpu'\n"
        "from sie_core.cli import main; main(['plugins', '--json'], standalone_mode=False)",
        "import sie_core, sie_kit.pytest_plugin",
    ],
)
def test_the_command_line_imports_neither_models_nor_the_web(code):
    modules = imported_by(code)

    assert "sie_core" in modules
    assert not modules & {*MODELS, *WEB}


def test_help_does_not_import_pydantic_or_numpy_either():
    assert not imported_by("from sie_core.cli import main; main(['--help'], standalone_mode=False)") & {
        "pydantic",
        "numpy",
        "pluggy",
    }


def test_discovery_of_every_installed_plugin_imports_no_model_library():
    modules = imported_by(
        "from sie_core.defaults import BUILTINS\n"
        "from sie_core.plugins import discover\n"
        "from sie_core.settings import Settings\n"
        "assert discover(Settings(strict_plugins=True), BUILTINS).families\n"
    )

    assert "sie_fake.plugin" in modules
    assert "sie_fake.adapter" not in modules
    assert not modules & {*MODELS, *WEB}


def test_no_public_module_of_sie_text_imports_a_model_library():
    code = (
        "import pkgutil, sie_text\n"
        "from importlib import import_module\n"
        "names = [each.name for each in pkgutil.iter_modules(sie_text.__path__)]\n"
        "[import_module(f'sie_text.{name}') for name in names]"
    )
    modules = imported_by(code)

    assert {"sie_text.static", "sie_text.encode", "sie_text.plugin", "sie_text.adapter"} <= modules
    assert not modules & {"torch", "transformers", "sentence_transformers", "huggingface_hub"}
