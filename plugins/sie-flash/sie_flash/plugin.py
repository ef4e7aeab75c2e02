"""The plugin `flash`: the runners it registers, best first. It imports neither torch nor a kernel."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from sie_pytorch.forward import INTERFACE

from sie_core.contracts import RunnerSpec
from sie_core.hookspecs import hookimpl

CONTRACT_VERSION = 1

CUDA = frozenset({"cuda"})

FLASH_ATTN = RunnerSpec(
    name="flash-attn",
    interface=INTERFACE,
    target="sie_flash.runners:FlashAttnRunner",
    devices=CUDA,
    priority=30,
    attention_backends=frozenset({"auto", "flash_attention_2"}),
)
"""The package flash-attn; registered where it is installed."""

TORCH_VARLEN = RunnerSpec(
    name="torch-varlen",
    interface=INTERFACE,
    target="sie_flash.runners:TorchVarlenRunner",
    devices=CUDA,
    priority=20,
    attention_backends=frozenset({"auto"}),
)
"""The variable-length attention that comes with PyTorch."""


@hookimpl
def sie_runners() -> list[RunnerSpec]:
    """Register the runners whose kernels are there; the packed runner of sie-pytorch is what is left below them."""
    return [FLASH_ATTN, TORCH_VARLEN] if _installed("flash-attn") else [TORCH_VARLEN]


def _installed(distribution: str) -> bool:
    try:
        version(distribution)
    except PackageNotFoundError:
        return False
    return True
