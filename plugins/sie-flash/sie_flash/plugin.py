"""The plugin `flash`: the runners it registers, best first. It imports neither torch nor a kernel."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version

from sie_pytorch.forward import INTERFACE
from sie_text.architectures import Feature

from sie_core.contracts import PluginSetting, RunnerSpec
from sie_core.hookspecs import hookimpl

INTERFACES = ("sie.runner/3", "sie.setting/1")

CUDA = frozenset({"cuda"})

FLASH_ATTN = RunnerSpec(
    name="flash-attn",
    interface=INTERFACE,
    target="sie_flash.runners:FlashAttnRunner",
    devices=CUDA,
    priority=30,
    attention_backends=frozenset({"auto", "flash_attention_2"}),
)
"""The package flash-attn; registered if it is installed."""

TORCH_VARLEN = RunnerSpec(
    name="torch-varlen",
    interface=INTERFACE,
    target="sie_flash.runners:TorchVarlenRunner",
    devices=CUDA,
    priority=20,
    attention_backends=frozenset({"auto"}),
)
"""The variable-length attention that comes with PyTorch."""

VARLEN_LOOP = RunnerSpec(
    name="varlen-loop",
    interface=INTERFACE,
    target="sie_flash.runners:VarlenLoopRunner",
    features=frozenset(Feature) - {Feature.DISENTANGLED, Feature.RELATIVE_BIAS},
    devices=CUDA,
    priority=40,
    attention_backends=TORCH_VARLEN.attention_backends,
)
"""The loop over described layers, by either kernel."""

FUSED_LOOP = replace(VARLEN_LOOP, name="fused-loop", target="sie_flash.runners:FusedLoopRunner", priority=39)
"""The same with fused Triton kernels; only a race can prefer it to `VARLEN_LOOP`."""

CUDA_GRAPHS = PluginSetting(
    "SIE_CUDA_GRAPHS",
    "off",
    "With `auto`, forward passes of at most 2,048 tokens are recorded as CUDA graphs and replayed; with `off`, each of "
    "their kernels is launched by itself.",
    allowed=("auto", "off"),
)
CUDA_FUSED = PluginSetting(
    "SIE_CUDA_FUSED",
    "off",
    "With `race`, a runner whose Triton kernels fuse norms and rotation of heads, and SiLU and gate, enters the race "
    "of runners. No GPU has confirmed it yet.",
    allowed=("off", "race"),
)


@hookimpl
def sie_runners() -> list[RunnerSpec]:
    """Register the runners whose kernels are installed; sie-pytorch's packed runner is the fallback."""
    loops = [VARLEN_LOOP, FUSED_LOOP] if CUDA_FUSED.value() == "race" and _installed("triton") else [VARLEN_LOOP]
    if not _installed("flash-attn"):
        return [*loops, TORCH_VARLEN]
    backends = FLASH_ATTN.attention_backends
    return [*(replace(each, attention_backends=backends) for each in loops), FLASH_ATTN, TORCH_VARLEN]


@hookimpl
def sie_settings() -> list[PluginSetting]:
    """Register the settings that turn CUDA graphs and fused kernels on."""
    return [CUDA_GRAPHS, CUDA_FUSED]


def _installed(distribution: str) -> bool:
    try:
        version(distribution)
    except PackageNotFoundError:
        return False
    return True
