"""The kernels are compiled with whatever compiler is named, and an installation never fails for want of one."""

import importlib.util
import os
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("hatchling")
SCRIPT = Path(__file__).parents[2] / "plugins/sie-cpu/build_kernels.py"


class App:
    """What the hook tells the person who installs."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def display_warning(self, message: str) -> None:
        self.warnings.append(message)


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The build hook, over a folder of its own and a source that is compiled at once."""
    spec = importlib.util.spec_from_file_location("build_kernels", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    source = tmp_path / "encoder.cpp"
    source.write_text('extern "C" int sie_interface() { return 0; }\n')
    monkeypatch.setattr(module, "PACKAGE", tmp_path)
    monkeypatch.setattr(module, "SOURCE", source)
    monkeypatch.setattr(module.platform, "system", lambda: "Linux")
    monkeypatch.setattr(module.platform, "machine", lambda: "x86_64")
    return module


def build(module: ModuleType) -> tuple[App, dict[str, Any]]:
    app, data = App(), {}
    hook = module.KernelBuild(str(module.PACKAGE), {}, None, None, str(module.PACKAGE), "wheel", app)
    hook.initialize("standard", data)
    return app, data


@pytest.mark.skipif(
    shutil.which("g++") is None or os.uname().machine != "x86_64", reason="no g++ here, or another processor"
)
def test_a_compiler_with_a_launcher_before_it_is_called(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "env g++")
    app, data = build(script)
    assert not app.warnings
    assert {file.name for file in script.PACKAGE.glob("*.so")} == set(script.BUILDS["x86_64"])
    assert data["tag"].startswith("py3-none-")


def test_a_compiler_that_is_not_there_costs_the_kernels_and_not_the_installation(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    (script.PACKAGE / "kernels_avx2.so").write_bytes(b"of an older source")
    app, _ = build(script)
    assert len(app.warnings) == len(script.BUILDS["x86_64"])
    assert "no-such-compiler" in app.warnings[0]
    assert not list(script.PACKAGE.glob("*.so"))


@pytest.mark.parametrize("compiler", ["no-such-compiler", None])
def test_a_wheel_without_kernels_is_not_tagged_for_this_platform_and_one_that_must_have_them_fails(
    compiler: str | None, script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    if compiler is not None:
        monkeypatch.setenv("CXX", compiler)
    (script.PACKAGE / "kernels_avx2.so").write_bytes(b"of an older source")
    _, data = build(script)
    assert "tag" not in data
    monkeypatch.setenv(script.REQUIRED, "required")
    with pytest.raises(RuntimeError, match=r"lacks kernels: kernels_avx512_bf16\.so, "):
        build(script)


def test_make_wheel_cpu_requires_them() -> None:
    (line,) = [line for line in (SCRIPT.parents[2] / "Makefile").read_text().splitlines() if "pip wheel" in line]
    assert "SIE_CPU_KERNELS=required" in line
