"""Fused kernels by Triton's interpreter, against the operators of PyTorch that they stand for."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from sie_flash import plugin
from sie_flash.attention import Rotation, VarlenAttention
from sie_flash.fused.parts import FusedParts, TritonAttention, TritonUpProjection
from sie_flash.loop import VarlenLoop
from sie_flash.products import FusedUpProjection
from sie_pytorch.forward import INTERFACE, RunnerContext

from sie_core.contracts import RunnerSpec
from tests.flash.plain import PLAIN
from tests.pytorch.forward.support import (
    LOOPED,
    PACKED,
    TOLERANCE,
    build,
    deviation,
    forward,
    load_of,
    packed_batch,
    padded_states,
    reference_model,
)
from tests.pytorch.models import ARCHITECTURES

TRITON = find_spec("triton") is not None
INTERPRETED = TRITON and os.environ.get("TRITON_INTERPRET") == "1"
if INTERPRETED:
    from sie_flash.fused import kernels

NEEDS_TRITON = pytest.mark.skipif(not TRITON, reason="needs Triton")
NEEDS_INTERPRETER = pytest.mark.skipif(not INTERPRETED, reason="runs in a process whose Triton interprets")
Checkpoint = Callable[[str], Path]
FUSED_NAMES = ["qwen3", "llama", "roformer", "gemma3", "nomic", "modernbert", "phi3"]
ALLOWED = {torch.float32: 2e-6, torch.float16: 4e-3, torch.bfloat16: 3e-2}
"""Largest difference: the operators round after each step, and the kernel once."""


class FusedLoop(VarlenLoop):
    """The loop with fused kernels, over the contract of an attention kernel."""

    def __init__(self, context: RunnerContext) -> None:
        super().__init__(context, PLAIN, kind=FusedParts)


@NEEDS_TRITON
@pytest.mark.skipif(INTERPRETED, reason="it is this process")
def test_the_kernels_hold_in_a_process_whose_triton_interprets() -> None:
    # Triton reads the variable when it is imported, which PyTorch may have done here.
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    done = subprocess.run(
        command, env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:]


@NEEDS_TRITON
@pytest.mark.skipif(INTERPRETED, reason="an interpreter compiles nothing")
@pytest.mark.parametrize("capability", [80, 90])
def test_the_kernels_compile_for_a_gpu_that_is_not_there(capability: int) -> None:
    from sie_flash.fused import kernels
    from triton import compile as compiled
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    target = GPUTarget("cuda", capability, 32)
    half = dict.fromkeys(("joined", "result", "weights", "cosine", "sine"), "*bf16")
    sizes = {"size": 96, "width": 64, "block": 128, "normed": True, "neighbours": False}
    numbers = {"row_stride": "i32", "cosine_stride": "i32", "epsilon": "fp32"}
    turned = {**half, **numbers, **dict.fromkeys(sizes, "constexpr")}
    gated = {"wide": "*fp16", "result": "*fp16", "inner": "i32", "gate_at": "i32", "up_at": "i32", "block": "constexpr"}
    for kernel, signature, constants in ((kernels._turned, turned, sizes), (kernels._gated, gated, {"block": 1024})):
        assert "ptx" in compiled(ASTSource(kernel, signature, constants), target=target).asm


FUSED = RunnerSpec("fused-loop", INTERFACE, "tests.flash.test_fused:FusedLoop", features=LOOPED, priority=40)


@NEEDS_INTERPRETER
@pytest.mark.parametrize("dtype", ALLOWED)
@pytest.mark.parametrize("gate_first", [True, False])
@pytest.mark.parametrize("inner", [8, 1500])
def test_silu_and_gate_are_what_the_operators_compute(dtype: torch.dtype, gate_first: bool, inner: int) -> None:
    wide = torch.randn(5, 2 * inner, generator=torch.Generator().manual_seed(3)).to(dtype)
    twin = object.__new__(FusedUpProjection)
    twin._halves, twin._gate_first, twin._activate = (inner, inner), gate_first, torch.nn.functional.silu
    found = kernels.silu_gate(wide, gate_first=gate_first)
    assert found.dtype is dtype
    torch.testing.assert_close(found, twin._gate(wide.clone()), rtol=ALLOWED[dtype], atol=ALLOWED[dtype])


@NEEDS_INTERPRETER
@pytest.mark.parametrize("dtype", ALLOWED)
@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("width", [None, 8, 24])
@pytest.mark.parametrize("normed", [True, False])
def test_norms_and_rotation_are_what_the_operators_compute(
    dtype: torch.dtype, interleaved: bool, width: int | None, normed: bool
) -> None:
    total, heads, key_heads, size = 5, 4, 2, 24
    generator = torch.Generator().manual_seed(7)
    joined = torch.randn(total, heads + 2 * key_heads, size, generator=generator).to(dtype)
    twin = object.__new__(VarlenAttention)
    twin._size, twin._epsilon = size, 1e-5 if normed else None
    twin._apart, twin._turned, twin._turned_apart = (heads, key_heads, key_heads), (6, key_heads), (heads, key_heads)
    twin._pair_axis = -1 if interleaved else -2
    twin._norm_weights = (1 + torch.randn(6, size, generator=generator)).to(dtype) if normed else None
    rotation = None
    if width is not None:
        angles = torch.randn(total, width // 2, generator=generator) * 3
        cosine, sine = angles.cos().to(dtype), angles.sin().to(dtype)
        signs = torch.tensor([-1, 1], dtype=dtype)
        rotation = (
            Rotation(cosine[:, None, :, None], sine[:, None, :, None] * signs, width)
            if interleaved
            else Rotation(cosine[:, None, None], sine[:, None, None] * signs[:, None], width)
        )
    fused = object.__new__(TritonAttention)
    fused.__dict__.update(twin.__dict__)
    before = joined.clone()
    found, expected = fused._heads(joined, rotation), twin._heads(before.clone(), rotation)
    assert torch.equal(joined, before)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.shape == theirs.shape
        torch.testing.assert_close(ours, theirs, rtol=ALLOWED[dtype], atol=4 * ALLOWED[dtype])


@NEEDS_INTERPRETER
@pytest.mark.parametrize("name", FUSED_NAMES)
@torch.inference_mode()
def test_a_loop_with_fused_steps_gives_what_transformers_gives(checkpoint: Checkpoint, name: str) -> None:
    folder, batch = checkpoint(name), packed_batch((5, 3))
    expected = padded_states(reference_model(name, folder), batch)
    loop = FusedLoop(load_of(reference_model(name, folder), folder))
    assert isinstance(loop._layers[0].attention, TritonAttention)
    gates = name in ("qwen3", "llama", "nomic", "phi3")
    assert isinstance(loop._layers[0].up_projection, TritonUpProjection) == gates
    assert deviation(forward(loop, batch), expected) <= TOLERANCE


@pytest.mark.parametrize("fault", [None, "heads", "gate"])
def test_a_wrong_kernel_fails_the_proof_at_load(
    fault: str | None, checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sie_flash.fused.parts.find_spec", lambda module: "there")

    def heads(own: VarlenAttention, joined: torch.Tensor, angles: Rotation | None) -> object:
        query, *others = VarlenAttention._heads(own, joined, angles)
        return (query.flip(1) if fault == "heads" else query), *others

    def gate(own: FusedUpProjection, wide: torch.Tensor) -> torch.Tensor:
        return FusedUpProjection._gate(own, -wide if fault == "gate" else wide)

    monkeypatch.setattr(TritonAttention, "_heads", heads)
    monkeypatch.setattr(TritonUpProjection, "_gate", gate)
    info = build(checkpoint("qwen3"), [FUSED, *PACKED]).info
    assert (info.name == "fused-loop") == (fault is None)
    assert ("its states differ" in info.reason) == (fault is not None)


def test_a_model_with_nothing_to_fuse_is_left_to_the_plain_loop(checkpoint: Checkpoint) -> None:
    info = build(checkpoint("bert"), [FUSED, *PACKED]).info
    assert info.name != "fused-loop"
    assert "neither rotate nor normalise" in info.reason or "Triton is not installed" in info.reason


@pytest.mark.parametrize("name", ["qwen3", "modernbert"])
def test_without_triton_it_says_so(name: str, checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    assert name in ARCHITECTURES
    monkeypatch.setattr("sie_flash.fused.parts.find_spec", lambda module: None)
    assert "Triton is not installed" in build(checkpoint(name), [FUSED, *PACKED]).info.reason


@pytest.mark.parametrize("installed", [True, False])
@pytest.mark.parametrize("value", ["off", "race"])
def test_it_enters_a_race_only_where_it_is_asked_for_and_never_goes_first(
    value: str, installed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIE_CUDA_FUSED", value)
    monkeypatch.setattr(plugin, "_installed", lambda distribution: installed and distribution == "triton")
    names = [spec.name for spec in sorted(plugin.sie_runners(), key=lambda spec: -spec.priority)]
    assert names == ["varlen-loop", *(["fused-loop"] if installed and value == "race" else []), "torch-varlen"]
