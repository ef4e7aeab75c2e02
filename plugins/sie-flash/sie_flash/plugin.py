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


CUDA_GRAPHS = PluginSetting(
    "SIE_CUDA_GRAPHS",
    "off",
    "With `auto`, forward passes of at most 2,048 tokens are recorded as CUDA graphs and replayed; with `off`, each of "
    "their kernels is launched by itself.",
    allowed=("auto", "off"),
)


@hookimpl
def sie_runners() -> list[RunnerSpec]:
    """Register the runners whose kernels are installed; sie-pytorch's packed runner is the fallback."""
    if not _installed("flash-attn"):
        return [VARLEN_LOOP, TORCH_VARLEN]
    return [replace(VARLEN_LOOP, attention_backends=FLASH_ATTN.attention_backends), FLASH_ATTN, TORCH_VARLEN]


@hookimpl
def sie_settings() -> list[PluginSetting]:
    """Register the setting that turns CUDA graphs on."""
    return [CUDA_GRAPHS]


def _installed(distribution: str) -> bool:
    try:
        version(distribution)
    except PackageNotFoundError:
        return False
    return True
