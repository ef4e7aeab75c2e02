"""Which precision a model ends up in."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import torch
from safetensors.torch import load_file, save_file
from sie_cpu.builds import BUILDS, choose_build, processor_flags
from sie_cpu.plugin import sie_runners
from sie_pytorch.forward import RunnerInfo
from sie_pytorch.forward.checkpoint.precision import (
    LEAST_COSINE,
    PrecisionLost,
    least_cosine,
    precisions,
    why_not_bfloat16,
)
from sie_pytorch.forward.choice import proof
from sie_pytorch.forward.choice.factory import CandidateFactory
from sie_pytorch.forward.specs import RUNNERS

from sie_core.cache.choices import kept_choices
from sie_core.contracts import ModelLoadError, RunnerSpec, processor
from sie_core.plugins import PluginSet
from sie_core.settings import load_settings
from tests.pytorch.forward.support import PACKED, batch_for, build, forward
from tests.pytorch.forward.test_proof import spec

CPU = torch.device("cpu")
WIDENING = next(build for build in BUILDS if build.widens)


@pytest.fixture
def calm(checkpoint: Callable[[str], Path], tmp_path: Path) -> Path:
    """Copy the BERT checkpoint with weights small enough that bfloat16 keeps their products."""
    folder = Path(shutil.copytree(checkpoint("bert"), tmp_path / "calm"))
    weights = load_file(folder / "model.safetensors")
    small = {name: (weight * 0.1 if weight.ndim > 1 else weight).clone() for name, weight in weights.items()}
    save_file(small, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute in bfloat16 whatever this processor is fast in."""
    monkeypatch.setenv("SIE_PYTORCH_CPU_BFLOAT16", "always")


@pytest.fixture
def on_processor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """Have this machine's processor tell other things of itself."""

    def tell(cpuinfo: str) -> None:
        file = tmp_path / "cpuinfo"
        file.write_text(cpuinfo)
        told = processor(file)
        monkeypatch.setattr("sie_pytorch.forward.checkpoint.precision.processor", lambda: told)

    return tell


def tried(asked: str) -> list[torch.dtype]:
    return [plan.compute for plan in precisions(asked, CPU)]


def test_float32_is_honoured_on_every_processor(always: None) -> None:
    (plan,) = precisions("float32", CPU)
    assert (plan.compute, plan.note) == (torch.float32, None)


@pytest.mark.parametrize("asked", ["float16", "bfloat16"])
def test_half_precision_on_a_cpu_is_bfloat16_where_it_is_fast(
    asked: str, on_processor: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    on_processor("flags : amx_bf16\n")
    assert tried(asked) == [torch.bfloat16, torch.float32]
    on_processor("flags : avx512f\n")
    assert tried(asked) == [torch.float32]
    monkeypatch.setenv("SIE_PYTORCH_CPU_BFLOAT16", "always")
    assert tried(asked) == [torch.bfloat16, torch.float32]


def test_an_accelerator_is_given_bfloat16_where_float16_overflows() -> None:
    plans = list(precisions("float16", torch.device("cuda")))
    assert [(plan.weights, plan.after_overflow) for plan in plans] == [
        (torch.float16, False),
        (torch.bfloat16, True),
        (torch.float32, False),
    ]
    assert all(plan.compute is plan.weights for plan in plans)


@pytest.fixture(params=["cpu-kernels", "encoder-loop", "packed"])
def specs(request: pytest.FixtureRequest) -> list[RunnerSpec]:
    """Give one runner."""
    return [spec for spec in (*RUNNERS, *sie_runners()) if spec.name == request.param]


INTEL = "vendor_id : GenuineIntel\nflags : avx512f avx512_bf16\n"


def test_a_processor_slow_in_bfloat16_computes_in_float32_and_says_so(
    calm: Path, specs: list[RunnerSpec], on_processor: Callable[[str], None]
) -> None:
    on_processor(INTEL)
    info = build(calm, [replace(spec, fast_in=frozenset()) for spec in specs], precision="bfloat16").info
    assert (info.name, info.precision) == (specs[0].name, "float32")
    assert info.notes["precision"] == "this processor multiplies bfloat16 at half the rate of float32"


needs_widening = pytest.mark.skipif(
    not (WIDENING.path.exists() and processor_flags() >= WIDENING.flags), reason="no AVX-512, or no kernels for it"
)
EVERY = (*RUNNERS, *sie_runners())


@needs_widening
def test_there_the_kernels_serve_with_weights_in_bfloat16(calm: Path, on_processor: Callable[[str], None]) -> None:
    on_processor(INTEL)
    info = build(calm, EVERY, precision="bfloat16").info
    assert (info.name, info.precision, info.notes["kernels"]) == (
        "cpu-kernels",
        "bfloat16",
        choose_build("bfloat16").name,
    )
    assert "precision" not in info.notes
    packed = build(calm, EVERY, precision="bfloat16", runner="packed").info
    assert (packed.name, packed.precision) == ("packed", "float32")


@needs_widening
def test_where_the_kernels_are_turned_away_every_runner_is_tried_in_float32(
    calm: Path, on_processor: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    on_processor(INTEL)
    monkeypatch.setattr(proof, "LEAST_COSINE", 1.1)
    info = build(calm, EVERY, precision="bfloat16").info
    assert (info.name, info.precision) == ("cpu-kernels", "float32")
    assert (
        "half the rate of float32; no runner keeps its states in bfloat16: not cpu-kernels" in (info.notes["precision"])
    )
    assert "padded" not in info.notes["precision"]


def test_bfloat16_states_stay_close_to_float32(calm: Path, specs: list[RunnerSpec], always: None) -> None:
    if specs[0].name == "cpu-kernels" and not processor_flags() >= WIDENING.flags:
        pytest.skip("this processor has no AVX-512")
    if specs[0].name == "encoder-loop" and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        pytest.skip("PyTorch prepacks no bfloat16 weights for this processor")
    half, full = build(calm, specs, precision="float16"), build(calm, specs, precision="float32")
    assert (half.info.name, half.info.precision) == (specs[0].name, "bfloat16")
    assert half.info.notes["precision"] == "half precision on a CPU is bfloat16"
    batch = batch_for("bert")
    lengths = batch.cu_seqlens.diff().tolist()
    assert LEAST_COSINE <= least_cosine(forward(half, batch), forward(full, batch), lengths) < 1 - 1e-9
    assert half.info.memory_bytes < full.info.memory_bytes


def test_a_model_that_bfloat16_turns_away_stays_in_float32(
    checkpoint: Callable[[str], Path], specs: list[RunnerSpec], always: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proof, "LEAST_COSINE", 1 - 1e-9)
    info = build(checkpoint("bert"), specs, precision="float16").info
    assert (info.name, info.precision) == (specs[0].name, "float32")
    assert re.match("no runner keeps its states in bfloat16: not [a-z-]+: in bfloat16", info.notes["precision"])


def test_where_a_runner_rounds_too_much_none_after_it_is_asked_in_half_precision(
    calm: Path, always: None, tmp_path: Path
) -> None:
    def names(info: RunnerInfo) -> tuple[str, str]:
        return info.name, info.precision

    kept = kept_choices(load_settings(local_cache=tmp_path / "cache"), PluginSet(), calm)
    for choices in (None, kept):  # by priority, and by a race
        assert names(build(calm, PACKED, precision="bfloat16", choices=choices).info) == ("packed", "bfloat16")
        info = build(calm, [spec("Rounds"), *PACKED], precision="bfloat16", choices=choices).info
        assert info.precision == "float32"
        assert info.notes["precision"].count("not ") == 1
        assert "not Rounds: in bfloat16 its cosine to float32 falls to" in info.notes["precision"]
        # One that rounds less and went before stays, whoever rounds too much after it.
        info = build(calm, [spec("Rounds", priority=-1), *PACKED], precision="bfloat16", choices=choices).info
        assert names(info) == ("packed", "bfloat16")


@pytest.mark.parametrize(
    ("cpuinfo", "reason"),
    [
        ("vendor_id\t: GenuineIntel\nflags\t\t: fpu avx512f avx512_bf16 amx_tile amx_bf16\n", None),
        ("vendor_id\t: GenuineIntel\nflags\t\t: fpu avx512f avx512_bf16\n", "half the rate of float32"),
        ("vendor_id\t: AuthenticAMD\nflags\t\t: fpu avx512f avx512_bf16\n", None),
        ("vendor_id\t: AuthenticAMD\nflags\t\t: fpu avx2\n", "no native bfloat16"),
        ("processor\t: 0\nFeatures\t: fp asimd bf16 i8mm\n", None),
        ("", "no native bfloat16"),
    ],
    ids=["Intel with AMX", "Intel without", "AMD with AVX-512", "AMD without", "Arm", "one that tells nothing"],
)
def test_a_processor_is_judged_by_what_it_tells_of_itself(cpuinfo: str, reason: str | None, tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text(cpuinfo)
    found = why_not_bfloat16(processor(file))
    assert found == reason or (reason is not None and found is not None and found.endswith(reason))


def test_a_lost_number_is_no_cosine() -> None:
    states = torch.ones(3, 4)
    broken = states.clone()
    broken[1, 2] = float("nan")
    assert not least_cosine(broken, states, [1, 2]) >= LEAST_COSINE


@pytest.mark.parametrize(("refused", "kind"), [(True, PrecisionLost), (False, ModelLoadError)])
def test_a_judge_s_refusal_on_an_accelerator_leaves_float32_to_be_tried(refused: bool, kind: type[Exception]) -> None:
    """There the model's own states are in half precision too, so that the two precisions are equal."""
    tried = SimpleNamespace(
        refused=["not packed: in float16 its probabilities move"],
        rounds_too_much=refused,
        dtype=torch.float16,
        references=SimpleNamespace(dtype=torch.float16),
        config=SimpleNamespace(model_type="bert"),
    )
    assert isinstance(CandidateFactory.failure(cast("CandidateFactory", tried)), kind)
