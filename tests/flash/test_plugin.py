"""What the plugin registers, with the package flash-attn and without it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from sie_flash import plugin
from sie_kit import conformance
from sie_pytorch.forward import INTERFACE

from sie_core.cli import main
from sie_core.contracts import ModelLoadError
from sie_core.defaults import BUILTINS
from sie_core.plugins import discover
from sie_core.settings import Settings
from tests.pytorch.forward.support import PACKED, build
from tests.pytorch.models import LAYERS_OF

Checkpoint = Callable[[str], Path]
WITHOUT = pytest.mark.skipif(plugin.FLASH_ATTN in plugin.sie_runners(), reason="flash-attn is installed")

test_sie_flash_conforms = conformance("sie-flash")


def test_the_runners_stand_above_the_packed_one_on_cuda_alone() -> None:
    registered = {row.name: row for row in discover(Settings(), BUILTINS).runners if row.interface == INTERFACE}
    ours = [plugin.VARLEN_LOOP, plugin.FLASH_ATTN, plugin.TORCH_VARLEN]
    assert plugin.TORCH_VARLEN in registered.values()
    assert [each.name for each in sorted([*ours, registered["packed"]], key=lambda each: -each.priority)] == [
        "varlen-loop",
        "flash-attn",
        "torch-varlen",
        "packed",
    ]
    needs = LAYERS_OF["bert"].needs
    assert all(row.serves("bert", "cuda", needs=needs) and not row.serves("bert", "cpu", needs=needs) for row in ours)
    assert not any(row.serves("bert", "cuda", backend) for row in ours for backend in ("sdpa", "eager"))
    assert plugin.FLASH_ATTN.serves("bert", "cuda", "flash_attention_2")
    assert not any(
        plugin.VARLEN_LOOP.serves("any", "cuda", needs=needs) for needs in (None, LAYERS_OF["deberta-v2"].needs)
    )


def test_the_loop_serves_where_flash_attn_is_asked_for_and_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    for there in (False, True):
        monkeypatch.setattr(plugin, "_installed", lambda _, there=there: there)
        loop = plugin.sie_runners()[0]
        assert loop.name == "varlen-loop"
        assert loop.serves("bert", "cuda", "flash_attention_2", LAYERS_OF["bert"].needs) == there


def registered_beside(folder: Path) -> list[str]:
    code = (
        "import sys\n"
        "from sie_flash import plugin\n"
        "print(*[row.name for row in plugin.sie_runners()])\n"
        "assert 'torch' not in sys.modules"
    )
    env = {"PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=250, check=True, env=env
    )
    return done.stdout.split()


@WITHOUT
def test_flash_attn_is_registered_where_it_is_installed(tmp_path: Path) -> None:
    assert registered_beside(tmp_path) == ["varlen-loop", "torch-varlen"]
    folder = tmp_path / "flash_attn-2.8.3.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: flash-attn\nVersion: 2.8.3\n")
    assert registered_beside(tmp_path) == ["varlen-loop", "flash-attn", "torch-varlen"]


@WITHOUT
def test_a_start_that_asks_for_it_in_vain_is_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIE_ATTENTION_BACKEND", "flash_attention_2")
    done = CliRunner().invoke(main, ["serve", "--port", "0"])
    assert done.exit_code != 0
    assert "SIE_ATTENTION_BACKEND=flash_attention_2" in done.output
    assert "Install a plugin with a runner that names it" in done.output


EVERYWHERE = replace(plugin.FLASH_ATTN, devices=frozenset())
"""The runner as if it served the CPU, whose package is not installed here."""


@WITHOUT
def test_a_package_that_cannot_be_imported_leaves_the_model_to_the_next_runner(checkpoint: Checkpoint) -> None:
    info = build(checkpoint("bert"), [EVERYWHERE, *PACKED]).info
    assert info.name == "packed"
    assert info.reason.startswith("not flash-attn: the package flash-attn cannot be imported; equals")


@WITHOUT
def test_it_fails_the_load_where_it_was_asked_for(checkpoint: Checkpoint) -> None:
    with pytest.raises(ModelLoadError, match=r"pip install .*flash-attn") as caught:
        build(checkpoint("bert"), [EVERYWHERE, *PACKED], attention_backend="flash_attention_2")
    assert caught.value.failure == "DEPENDENCY"
    assert build(checkpoint("bert"), [EVERYWHERE, *PACKED], attention_backend="sdpa").info.reason.startswith("equals")


@WITHOUT
def test_the_loop_fails_the_load_too_where_it_was_asked_for(checkpoint: Checkpoint) -> None:
    loop = replace(plugin.VARLEN_LOOP, devices=frozenset(), attention_backends=frozenset({"flash_attention_2"}))
    with pytest.raises(ModelLoadError, match=r"pip install .*flash-attn"):
        build(checkpoint("bert"), [loop, *PACKED], attention_backend="flash_attention_2")


def test_the_loop_can_be_asked_for_by_name_and_leaves_float32_to_the_next(checkpoint: Checkpoint) -> None:
    loop = replace(plugin.VARLEN_LOOP, devices=frozenset(), priority=-1)
    info = build(checkpoint("bert"), [*PACKED, loop], runner="varlen-loop").info
    assert info.name == "packed"
    assert info.reason.startswith("not varlen-loop: its attention is in float32")
