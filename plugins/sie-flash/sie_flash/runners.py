"""The runners of this plugin: sie-pytorch's packed runner and its loop, with variable-length attention kernels.

A kernel's requirements of a device are checked here.
"""

from __future__ import annotations

import logging
from functools import partial
from importlib.util import find_spec
from typing import ClassVar

import torch
from sie_pytorch.forward import PackedRunner, RunnerContext, RunnerUnfitError, Transfers

from sie_core.contracts import ModelLoadError
from sie_flash.fused.parts import FusedParts
from sie_flash.graphs import CudaCapture
from sie_flash.kernels import Kernel, flash_attn, torch_flash, torch_varlen
from sie_flash.layout import lay_out
from sie_flash.loop import VarlenLoop, VarlenParts
from sie_flash.plugin import CUDA_GRAPHS

logger = logging.getLogger(__name__)

LEAST_CAPABILITY = (8, 0)
"""Ampere's, for which FlashAttention-2 is written."""
REMEDY = (
    "It may be missing or built for another PyTorch: "
    "`pip install --force-reinstall --no-deps --no-build-isolation flash-attn`, or set SIE_ATTENTION_BACKEND=auto."
)


class VarlenRunner(PackedRunner):
    """Drives a transformers model with one kernel call per layer for attention."""

    def __init__(self, context: RunnerContext, kernel: Kernel) -> None:
        """Switch the model over to the kernel.

        Raises:
            RunnerUnfitError: The device is too old, or the model's attention cannot be exchanged.
        """
        if context.device.type == "cuda":
            _require_capability(context.device, kernel)
        super().__init__(context, partial(lay_out, kernel, Transfers(context.device)))


class FlashAttnRunner(VarlenRunner):
    """Attends by the package flash-attn."""

    def __init__(self, context: RunnerContext) -> None:
        """Import the package and switch the model over.

        Raises:
            ModelLoadError: `DEPENDENCY`: `flash_attention_2` was requested and the package cannot be imported.
            RunnerUnfitError: It cannot be imported or does not serve this model or device.
        """
        super().__init__(context, _imported(context))


class TorchVarlenRunner(VarlenRunner):
    """Attends by PyTorch's own variable-length attention."""

    def __init__(self, context: RunnerContext) -> None:
        """Switch the model over.

        Raises:
            RunnerUnfitError: This PyTorch has no such attention, or it does not serve this model or device.
        """
        super().__init__(context, torch_varlen())


class VarlenLoopRunner(VarlenLoop):
    """Runs a described model's layers itself, with the best available attention kernel."""

    kind: ClassVar[type[VarlenParts]] = VarlenParts

    def __init__(self, context: RunnerContext) -> None:
        """Choose the kernel and take the model's weights.

        Raises:
            ModelLoadError: `DEPENDENCY`: `flash_attention_2` was requested and the package cannot be imported.
            RunnerUnfitError: No kernel is there, or it does not serve this model or device.
        """
        graphed = context.device.type == "cuda" and CUDA_GRAPHS.value() == "auto"
        capture = partial(CudaCapture, context.device) if graphed else None
        super().__init__(context, _best(context), capture, self.kind)


class FusedLoopRunner(VarlenLoopRunner):
    """The same with fused kernels between the products."""

    kind = FusedParts


def _best(context: RunnerContext) -> Kernel:
    """Return flash-attn's kernel, or PyTorch's own if it is not available."""
    wanted = context.attention_backend == "flash_attention_2" or find_spec("flash_attn") is not None
    try:
        kernel = _imported(context) if wanted else torch_flash()
    except RunnerUnfitError:
        kernel = torch_flash()
    if context.device.type == "cuda":
        _require_capability(context.device, kernel)
    return kernel


def _imported(context: RunnerContext) -> Kernel:
    """Import the package flash-attn.

    Raises:
        ModelLoadError: `DEPENDENCY`: `flash_attention_2` was requested and the package cannot be imported.
        RunnerUnfitError: It cannot be imported.
    """
    try:
        return flash_attn()
    except ImportError as error:
        logger.warning("The package flash-attn cannot be imported", exc_info=True)
        if context.attention_backend == "flash_attention_2":
            raise ModelLoadError("DEPENDENCY", f"The package flash-attn cannot be imported. {REMEDY}") from error
        raise RunnerUnfitError("the package flash-attn cannot be imported") from error


def _require_capability(device: torch.device, kernel: Kernel) -> None:
    capability = torch.cuda.get_device_capability(device)
    if capability < LEAST_CAPABILITY:
        have, need = (".".join(map(str, version)) for version in (capability, LEAST_CAPABILITY))
        raise RunnerUnfitError(f"{kernel.name} needs compute capability {need}, and {device} has {have}")
