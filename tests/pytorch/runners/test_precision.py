"""Which precision a model ends up in."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from sie_pytorch.runners import precision
from sie_pytorch.runners.precision import LEAST_COSINE, has_native_bfloat16, least_cosine, load_in_precision

from tests.pytorch.runners.support import batch_for, build, forward

CPU = torch.device("cpu")


@pytest.fixture
def calm(checkpoint: Callable[[str], Path], tmp_path: Path) -> Path:
    """Copy the BERT checkpoint with weights small enough that bfloat16 keeps their products."""
    folder = Path(shutil.copytree(checkpoint("bert"), tmp_path / "calm"))
    weights = load_file(folder / "model.safetensors")
    small = {name: (weight * 0.1 if weight.ndim > 1 else weight).clone() for name, weight in weights.items()}
    save_file(small, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def test_float32_is_honoured_on_every_processor(checkpoint: Callable[[str], Path]) -> None:
    loaded = load_in_precision(checkpoint("bert"), "float32", CPU, native_bfloat16=True)
    assert (loaded.dtype, loaded.note) == (torch.float32, None)


@pytest.mark.parametrize("asked", ["float16", "bfloat16"])
def test_a_processor_without_bfloat16_computes_in_float32_and_says_so(
    asked: str, checkpoint: Callable[[str], Path]
) -> None:
    loaded = load_in_precision(checkpoint("bert"), asked, CPU, native_bfloat16=False)
    assert loaded.dtype == torch.float32
    assert next(loaded.model.parameters()).dtype == torch.float32
    assert loaded.note == f"float32 instead of {asked}: this processor has no native bfloat16"


def test_a_processor_with_bfloat16_uses_it_where_the_numbers_hold(calm: Path) -> None:
    loaded = load_in_precision(calm, "float16", CPU, native_bfloat16=True)
    assert loaded.dtype == torch.bfloat16
    assert loaded.note is not None
    assert loaded.note.startswith("bfloat16 instead of float16: cosine to float32 0.999")
    assert load_in_precision(calm, "bfloat16", CPU, native_bfloat16=True).note is None


def test_a_model_that_bfloat16_turns_away_stays_in_float32(checkpoint: Callable[[str], Path]) -> None:
    loaded = load_in_precision(checkpoint("nomic"), "float16", CPU, native_bfloat16=True)
    assert loaded.dtype == torch.float32
    assert loaded.note is not None
    assert loaded.note.startswith("float32 instead of float16: in bfloat16 the cosine to float32 falls to 0.99")


def test_packed_bfloat16_states_stay_close_to_float32(calm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "has_native_bfloat16", lambda: True)
    half, full = build(calm, precision="float16"), build(calm, precision="float32")
    assert (half.info.name, half.info.precision) == ("packed", "bfloat16")
    assert half.info.memory_bytes < 0.6 * full.info.memory_bytes
    batch = batch_for("bert")
    lengths = batch.cu_seqlens.diff().tolist()
    assert least_cosine(forward(half, batch), forward(full, batch), lengths) >= LEAST_COSINE


@pytest.mark.parametrize(
    ("cpuinfo", "native"),
    [
        ("processor\t: 0\nflags\t\t: fpu avx512f avx512_bf16 amx_tile\n", True),
        ("processor\t: 0\nflags\t\t: fpu avx512f avx512_vnni\n", False),
        ("processor\t: 0\nFeatures\t: fp asimd bf16 i8mm\n", True),
        ("", False),
    ],
)
def test_a_processor_is_asked_for_its_flags(cpuinfo: str, native: bool, tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text(cpuinfo)
    assert has_native_bfloat16(file) is native
    assert has_native_bfloat16(tmp_path / "missing") is False


def test_a_lost_number_is_no_cosine() -> None:
    states = torch.ones(3, 4)
    broken = states.clone()
    broken[1, 2] = float("nan")
    assert not least_cosine(broken, states, [1, 2]) >= LEAST_COSINE
