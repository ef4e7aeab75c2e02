"""Half-precision checkpoints in float32 on a CPU, against their own weights written as float32."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from sie_cpu.plugin import sie_runners
from sie_pytorch.forward import RunnerContext
from sie_pytorch.forward.checkpoint.half_precision import half_of, widen_small_weights
from sie_pytorch.forward.checkpoint.reading import load_model
from sie_pytorch.forward.specs import RUNNERS

from sie_core.contracts import ModelCard, RunnerSpec
from tests.pytorch.forward.support import TOLERANCE, batch_for, build, deviation, forward
from tests.pytorch.models import ARCHITECTURES

CPU = torch.device("cpu")
HALVES = {"bfloat16": torch.bfloat16, "float16": torch.float16}


def write_as(folder: Path, source: Path, dtypes: Callable[[str], torch.dtype]) -> Path:
    """Copy a checkpoint, its weights rounded to bfloat16 and then in the precision that `dtypes` names for each."""
    shutil.copytree(source, folder)
    weights: Mapping[str, torch.Tensor] = load_file(source / "model.safetensors")
    written = {name: weight.clamp(-100, 100).bfloat16().to(dtypes(name)) for name, weight in weights.items()}
    save_file(written, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.mark.parametrize("name", sorted(ARCHITECTURES))
def test_half_precision_files_give_the_states_of_the_same_weights_in_float32(
    checkpoint: Callable[[str], Path], tmp_path: Path, name: str
) -> None:
    half = build(write_as(tmp_path / "half", checkpoint(name), lambda _: torch.bfloat16))
    full = build(write_as(tmp_path / "full", checkpoint(name), lambda _: torch.float32))
    assert half.info.name == full.info.name
    assert half.info.precision == "float32"
    batch = batch_for(name)
    assert deviation(forward(half, batch), forward(full, batch)) < TOLERANCE


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("specs", [RUNNERS, sie_runners()], ids=["encoder-loop", "cpu-kernels"])
def test_runners_that_pack_weights_take_them_from_halves_as_from_float32(
    checkpoint: Callable[[str], Path], tmp_path: Path, specs: Sequence[RunnerSpec], half: str
) -> None:
    runners = [
        build(write_as(tmp_path / str(dtype), checkpoint("bert"), lambda _, dtype=dtype: dtype), specs)
        for dtype in (HALVES[half], torch.float32)
    ]
    assert runners[0].info.name == runners[1].info.name
    states, expected = (forward(runner, batch_for("bert")) for runner in runners)
    # PyTorch looks up tables that lie in halves, the kernels those in float32: their norms round otherwise.
    assert torch.allclose(states, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("dtypes", "half"),
    [
        ((torch.float16, torch.int64, torch.bool), torch.float16),
        ((torch.float16, torch.bfloat16), None),
        ((torch.bfloat16, torch.float8_e4m3fn), None),
        ((torch.int8,), None),
    ],
)
def test_the_half_precision_of_files_is_that_of_all_their_floating_point_numbers(
    tmp_path: Path, dtypes: Sequence[torch.dtype], half: torch.dtype | None
) -> None:
    save_file({str(dtype): torch.zeros(2, dtype=dtype) for dtype in dtypes}, tmp_path / "model.safetensors")
    assert half_of(tmp_path) is half


def test_files_of_several_precisions_are_no_half_precision(checkpoint: Callable[[str], Path], tmp_path: Path) -> None:
    mixed = write_as(
        tmp_path / "mixed", checkpoint("bert"), lambda name: torch.float32 if "LayerNorm" in name else torch.bfloat16
    )
    assert half_of(mixed) is None
    model = load_model(mixed, torch.float32, CPU)
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}


def test_what_is_large_stays_in_the_precision_of_the_files_until_it_is_cast(
    checkpoint: Callable[[str], Path], tmp_path: Path
) -> None:
    model = load_model(write_as(tmp_path / "half", checkpoint("bert"), lambda _: torch.float16), torch.float32, CPU)
    halves = {name for name, weight in model.named_parameters() if weight.dtype is torch.float16}
    large = {name for name, weight in model.named_parameters() if weight.ndim == 2}
    assert halves == large - {"embeddings.position_embeddings.weight", "embeddings.token_type_embeddings.weight"}
    ids = torch.arange(5)
    assert model.embeddings.word_embeddings(ids).dtype is torch.float32


def test_a_class_that_names_no_embeddings_is_left_as_it_is(
    checkpoint: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load_model(checkpoint("bert"), torch.float16, CPU)

    def not_known(_: object) -> None:
        raise NotImplementedError

    monkeypatch.setattr(type(model), "get_input_embeddings", not_known)
    assert not widen_small_weights(model)
    assert {weight.dtype for weight in model.parameters()} == {torch.float16}


@pytest.mark.parametrize("name", ["qwen3", "gemma3", "nomic"])
def test_rotary_frequencies_stay_as_they_are_where_weights_are_cast(
    checkpoint: Callable[[str], Path], name: str
) -> None:
    # In bfloat16 a frequency is off by up to 1/512: by a whole radian at the 500th token.
    model = load_model(checkpoint(name), torch.float32, CPU)
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    assert any("inv_freq" in name for name in before)
    context = RunnerContext(
        model,
        checkpoint(name),
        ModelCard(checkpoint(name), {}),
        device=CPU,
        dtype=torch.bfloat16,
        attention_backend="auto",
        threads=1,
    )
    assert {weight.dtype for weight in context.cast_model().parameters()} == {torch.bfloat16}
    assert all(torch.equal(buffer, before[name]) for name, buffer in model.named_buffers())
